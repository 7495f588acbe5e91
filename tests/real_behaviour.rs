//! The behaviour of the manager against kube-apiserver and etcd: the same scenarios as in
//! `behaviour.rs`. Where the two differ, the cluster in memory is wrong.

#[path = "behaviour/suite.rs"]
mod suite;

suite::scenarios!(suite::Kind::Real);
