//! A seed is a world: the same each time, under either model, with nothing wrong in it.

use m0_sim::plan::Model;
use m0_sim::run::run;

#[test]
fn worlds_end_well_under_both_models_and_the_same_way_each_time() {
    for model in [Model::Inverted, Model::Pump] {
        for seed in 1..=60 {
            let first = run(seed, Some(model), false);
            assert_eq!(first.failure, None, "{model:?}, seed {seed}");
            let second = run(seed, Some(model), true);
            let same = |outcome: &m0_sim::run::Outcome| (outcome.digest, outcome.steps, outcome.answers);
            assert_eq!(
                same(&first),
                same(&second),
                "{model:?}, seed {seed}: a trace changes nothing"
            );
        }
    }
}
