//! Stub.
use schemars::JsonSchema;
use serde::Serialize;
/// Stub.
#[derive(Serialize, JsonSchema)]
pub struct SurveyDocument {}
