// SPDX-License-Identifier: Apache-2.0
// Reads the body of vm.create from standard input into the types of a client of Cloud Hypervisor's API.
use cloud_hypervisor_client::models::VmConfig;

fn main() {
    let mut strange = Vec::new();
    let mut reader = serde_json::Deserializer::from_reader(std::io::stdin());
    let read: Result<VmConfig, _> = serde_ignored::deserialize(&mut reader, |path| strange.push(path.to_string()));
    match read {
        Err(error) => panic!("{error}"),
        Ok(_) if !strange.is_empty() => panic!("unknown: {}", strange.join(", ")),
        Ok(_) => {}
    }
}
