//! The rules of a test: which calls are not to go as they should.

use crate::twins::cuda_names;
use crate::wire::{Act, Rule, RuleId};

#[derive(Debug, Default)]
pub(super) struct Rules {
    set: Vec<Set>,
    given: u64,
    /// Hits of rules that are gone are kept with them.
    gone: Vec<(RuleId, u64)>,
}

#[derive(Debug)]
struct Set {
    id: RuleId,
    rule: Rule,
    hits: u64,
}

impl Rules {
    pub(super) fn add(&mut self, rule: Rule) -> RuleId {
        self.given += 1;
        let id = RuleId(self.given);
        self.set.push(Set { id, rule, hits: 0 });
        id
    }

    pub(super) fn clear(&mut self) {
        self.gone.extend(self.set.drain(..).map(|set| (set.id, set.hits)));
    }

    pub(super) fn hits(&self, id: RuleId) -> u64 {
        let now = self.set.iter().map(|set| (set.id, set.hits));
        now.chain(self.gone.iter().copied()).find(|(other, _)| *other == id).map_or(0, |(_, hits)| hits)
    }

    /// What is to be done to a call of that name. It counts against every rule for it, up to the one that acts.
    pub(super) fn act(&mut self, name: &str) -> Option<Act> {
        for set in self.set.iter_mut().filter(|set| is_named(name, &set.rule.call)) {
            if set.rule.skip > 0 {
                set.rule.skip -= 1;
                continue;
            }
            match &mut set.rule.times {
                Some(0) => continue,
                Some(times) => *times -= 1,
                None => {}
            }
            set.hits += 1;
            return Some(set.rule.act);
        }
        None
    }
}

/// Whether an exported name is `name`, or is it but for a version: `cuMemFree_v2`; or CUDA's name of the same call is.
pub(super) fn is_named(exported: &str, name: &str) -> bool {
    is_named_itself(exported, name) || cuda_names(exported).any(|twin| is_named_itself(twin, name))
}

fn is_named_itself(exported: &str, name: &str) -> bool {
    let Some(rest) = exported.strip_prefix(name) else { return false };
    let version = rest.strip_prefix("_v");
    rest.is_empty()
        || version
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}
