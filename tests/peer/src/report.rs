// SPDX-License-Identifier: GPL-2.0

//! What a case has to say.

use serde_json::{json, Map, Value};

/// The result of a case.
pub struct Report {
    role: &'static str,
    case: String,
    sent: Vec<String>,
    got: Vec<String>,
    facts: Map<String, Value>,
    wrong: Option<String>,
}

impl Report {
    /// Nothing happened yet.
    pub fn new(role: &'static str, case: &str) -> Self {
        Self {
            role,
            case: case.to_string(),
            sent: Vec::new(),
            got: Vec::new(),
            facts: Map::new(),
            wrong: None,
        }
    }

    /// This was sent.
    pub fn sent(&mut self, what: impl Into<String>) {
        self.sent.push(what.into());
    }

    /// This came back.
    pub fn got(&mut self, what: impl Into<String>) {
        self.got.push(what.into());
    }

    /// A number or text by name.
    pub fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.to_string(), value.into());
    }

    /// The peer did not do what it should have done; the first reason counts.
    pub fn wrong(&mut self, why: impl Into<String>) {
        self.wrong.get_or_insert(why.into());
    }

    /// Whether the peer did what it should.
    pub fn is_ok(&self) -> bool {
        self.wrong.is_none()
    }

    /// All of it, in one line.
    pub fn to_json(&self) -> String {
        let mut all = json!({
            "ok": self.is_ok(),
            "role": self.role,
            "case": self.case,
            "sent": self.sent,
            "got": self.got,
        });
        if let Value::Object(map) = &mut all {
            map.extend(self.facts.clone());
            if let Some(wrong) = &self.wrong {
                map.insert("wrong".into(), wrong.clone().into());
            }
        }
        all.to_string()
    }
}
