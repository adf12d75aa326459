//! Records the devices of a run that was resumed on other devices.

use serde_json::Value;

use crate::{EarlierDevices, Manifest, RunInfo};

/// A run that was resumed on other devices.
#[derive(Debug)]
pub(crate) struct MovedRun {
    info: RunInfo,
    cost: Value,
}

impl MovedRun {
    /// Adds the devices of the earlier run to the manifest of the resumed one; `None` if they are the same.
    pub(crate) fn note(manifest: &mut Manifest, old: &Manifest) -> Option<Self> {
        if manifest.info.device_differences(&old.info).is_empty() {
            return None;
        }
        let model = &old.info.model;
        let [device, platform] = ["device", "platform"].map(|key| model[key].clone());
        manifest.computed_on.push(EarlierDevices { device, platform, cost: old.cost.clone() });
        Some(Self { info: old.info.clone(), cost: old.cost.clone() })
    }

    /// Restores the devices of the earlier run if the resumed one has computed nothing; returns the info of the earlier
    /// run.
    pub(crate) fn put_back(self, manifest: &mut Manifest) -> RunInfo {
        manifest.computed_on.pop();
        manifest.info.model.clone_from(&self.info.model);
        manifest.info.other_models.clone_from(&self.info.other_models);
        manifest.info.arguments_in_force["model"] = self.info.arguments_in_force["model"].clone();
        if !self.cost.is_null() {
            manifest.cost = self.cost;
        }
        self.info
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use probity_lm::{Ask, LabelSet, LanguageModel as _, Prompt, ScoreRequest, ScriptedModel};
    use serde_json::json;

    use super::*;
    use crate::{Existing, Recorded, RunFolder, RunStatus};

    #[test]
    fn a_run_that_went_on_elsewhere_names_all_devices_that_computed_and_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run");
        let on = |device: &str| RunInfo {
            model: json!({"name": "m", "device": device, "platform": "candle"}),
            arguments_in_force: json!({"model": {"device": device}, "data": {}}),
            ..RunInfo::default()
        };
        let ask = Ask::Labels(LabelSet::from_words(["A", "B"]).expect("valid"));
        let question = ScoreRequest { id: "q".into(), prompt: Prompt::Text("x".into()), ask };
        let model = ScriptedModel::from_probabilities(|_| vec![0.5, 0.5]);
        let run = |device: &str, existing: Existing, computed: u64| -> Manifest {
            let mut run = RunFolder::create(&path, existing, on(device)).expect("goes on");
            let answers = Arc::new(run.answers().expect("opened"));
            let recorded = Recorded::new(Arc::new(&model), "", Some(&answers), None).expect("readable");
            recorded.score_all(std::slice::from_ref(&question)).expect("answered");
            drop((recorded, answers));
            run.set_cost(&json!({"tokens_computed": computed})).expect("JSON");
            if computed == 0 {
                run.keep_devices();
            }
            run.finish().expect("written");
            Manifest::read(&path).expect("there")
        };
        let told = |manifest: &Manifest| {
            assert_eq!(manifest.status, RunStatus::Finished);
            let (model, arguments) = (&manifest.info.model, &manifest.info.arguments_in_force["model"]);
            assert_eq!(model["device"], arguments["device"]);
            let before: Vec<(Value, Value)> = manifest
                .computed_on
                .iter()
                .map(|one| (one.device.clone(), one.cost["tokens_computed"].clone()))
                .collect();
            (model["device"].clone(), manifest.cost["tokens_computed"].clone(), before)
        };
        run("cuda:0", Existing::Refuse, 7);
        let nothing = run("cuda:0,cuda:1", Existing::Resume, 0);
        assert_eq!((told(&nothing), nothing.resumed.len()), ((json!("cuda:0"), json!(7), vec![]), 1));
        let more = run("cuda:0,cuda:1", Existing::Resume, 3);
        assert_eq!(told(&more), (json!("cuda:0,cuda:1"), json!(3), vec![(json!("cuda:0"), json!(7))]));
        // On the same devices again, the cost counts from there.
        let again = run("cuda:0,cuda:1", Existing::Resume, 0);
        assert_eq!(told(&again), (json!("cuda:0,cuda:1"), json!(0), vec![(json!("cuda:0"), json!(7))]));
    }
}
