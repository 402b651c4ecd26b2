//! The costs of a machine give the same figures each time, and the two models differ as the record says they do.

use m0_sim::costs::{MAC, Profile, VIRTUAL, measure};
use m0_sim::plan::Model;

/// Requests a second of the inversion for each of the pump.
fn ratio(profile: Profile, cpus: usize, connections: usize) -> f64 {
    let rate = |model| measure(profile, model, cpus, connections, 2_000).rate;
    rate(Model::Inverted) / rate(Model::Pump)
}

#[test]
fn figures_are_the_same_each_time() {
    let first = measure(VIRTUAL, Model::Pump, 2, 256, 2_000);
    assert_eq!(measure(VIRTUAL, Model::Pump, 2, 256, 2_000), first);
    assert!(first.cores > 1.2 && first.p50 <= first.p99, "{first:?}");
}

/// One usable CPU favours the inversion, several the pump; with little to do for each, waking the other thread decides.
#[test]
fn each_model_wins_where_the_record_says() {
    assert!(ratio(VIRTUAL, 1, 256) > 1.0);
    assert!(ratio(VIRTUAL, 2, 256) < 0.8);
    assert!(ratio(VIRTUAL, 2, 16) > 1.0);
    assert!(ratio(MAC, 2, 16) < 0.8);
}
