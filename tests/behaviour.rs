//! The behaviour of the manager, against API servers in memory (`fake`) and against kube-apiserver
//! and etcd (`real`). Where the two differ, the one in memory is wrong.

#[path = "behaviour/suite.rs"]
mod suite;

mod fake {
    crate::suite::scenarios!(Fake);
}

mod real {
    crate::suite::scenarios!(Real);
}
