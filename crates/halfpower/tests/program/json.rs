//! Tests `--json`: stdout must have one document that fits the published schema, and nothing else.

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

use crate::fixture::{MIB, Place};

/// A published JSON schema.
pub struct Schema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Schema {
    /// Loads the schema that `halfpower generate schema-NAME` prints.
    pub fn of(name: &str) -> Schema {
        let schema = Place::new().does(&format!("generate schema-{name}")).json();
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("schema.json", schema).unwrap();
        let index = compiler.compile("schema.json", &mut schemas).unwrap();
        Schema { schemas, index }
    }

    fn faults(&self, document: &Value) -> Option<String> {
        self.schemas.validate(document, self.index).err().map(|error| error.to_string())
    }

    #[track_caller]
    pub fn fits(&self, document: &Value) {
        if let Some(faults) = self.faults(document) {
            panic!("the document does not fit the schema: {faults}\n{document:#}");
        }
    }
}

#[test]
fn every_sort_of_run_prints_a_document_that_fits_the_schema() {
    let schema = Schema::of("run");
    let place = Place::new();
    place.file("data", MIB);
    for line in [
        "run --ioengine null --runtime 0.2",
        "run . --rw randread --iodepth 8 --size 1m",
        "run . --rw write --size 1m --direct=0",
        "run . --rw randrw --size 1m --write-through",
        "run data --direct=0 --bs 64k --size 1m",
        "run data data --bs 64k --size 1m --rate-iops 2000",
        "run . --size 1m --rw write --allocation extend --label named --pap 1GB/s",
    ] {
        schema.fits(&place.document(&format!("{line} --trials 2 --no-store")));
    }
}

#[test]
fn a_sweep_prints_a_document_that_fits_the_schema() {
    let line = "sweep . --rw read,randrw --bs 4k,16k --size 1m --trials 1 --no-store";
    Schema::of("sweep").fits(&Place::new().document(line));
}

#[test]
fn a_document_with_a_field_missing_does_not_fit_the_schema() {
    let schema = Schema::of("run");
    let line = "run --ioengine null --runtime 0.2 --trials 1 --no-store";
    let mut document = Place::new().document(line);
    document["trials"][0].as_object_mut().unwrap().remove("elapsed_ns");
    let faults = schema.faults(&document).unwrap();
    assert!(faults.contains("elapsed_ns"), "{faults}");
}

#[test]
fn a_run_has_every_field_of_the_contract() {
    let line = "run . --rw randrw --bs 4k --iodepth 4 --size 1m --trials 1 --no-store";
    let document = Place::new().document(line);
    for path in [
        "/halfpower/version /halfpower/schema /host /target /verdict/state /verdict/reasons",
        "/workload/rw /workload/request_bytes /workload/depth /workload/threads /workload/seed",
        "/workload/ioengine /workload/caching /workload/size_bytes",
        "/trials/0/bytes /trials/0/requests /trials/0/errors /trials/0/elapsed_ns",
        "/trials/0/latency_ns/mean /trials/0/latency_ns/min /trials/0/latency_ns/p50",
        "/trials/0/latency_ns/p90 /trials/0/latency_ns/p99 /trials/0/latency_ns/p99_9",
        "/trials/0/latency_ns/max /trials/0/cpu_ns/process /trials/0/cpu_ns/machine",
        "/trials/0/cpu_ns/soaker /trials/0/accepted_ns",
        "/summary/throughput_bytes_per_s/median /summary/throughput_bytes_per_s/low",
        "/summary/throughput_bytes_per_s/high /summary/requests_per_s/median",
        "/summary/latency_ns/mean /summary/latency_ns/p50 /summary/latency_ns/p99",
        "/summary/latency_ns/p99_9 /summary/by_operation/read /summary/by_operation/write",
        "/summary/cpu_ns_per_request/lower /summary/cpu_ns_per_request/upper",
        "/summary/cpu_ns_per_byte/lower /summary/cpu_ns_per_byte/upper",
    ]
    .iter()
    .flat_map(|line| line.split(' '))
    {
        assert!(document.pointer(path).is_some(), "{path} is missing: {document:#}");
    }
}

#[test]
fn a_failed_run_prints_no_half_document() {
    let place = Place::new();
    place.cannot("run missing --json").with_code(2);
    place.cannot("sweep missing --json").with_code(2);
}
