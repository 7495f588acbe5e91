//! The descriptors of this process: every worker cluster has a port here, and the manager's
//! connections to it.

/// A port, a connection, and one that is between two states.
const PER_TENANT: u64 = 3;
/// The program's own: pipes, logs, the connections of several replicas to the management cluster.
const OWN: u64 = 100;

/// Raises the soft limit as far as it may be, and tells where that is too little. The manager
/// raises its own.
pub fn raise_for(tenants: usize) -> anyhow::Result<()> {
    let limit = rlimit::increase_nofile_limit(u64::MAX)?;
    let needed = u64::try_from(tenants)? * PER_TENANT + OWN;
    anyhow::ensure!(
        limit >= needed,
        "{tenants} tenants take {needed} descriptors, and {limit} are allowed: \
         raise the hard limit (ulimit -Hn)"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_tenants_are_reported_before_anything_is_started() {
        raise_for(10).unwrap();
        let told = raise_for(usize::MAX / 8).unwrap_err().to_string();
        assert!(told.contains("raise the hard limit"), "{told}");
    }
}
