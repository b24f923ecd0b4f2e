# SPDX-License-Identifier: Apache-2.0
# A dict, as documentation shows it.
parallelism_config = {
    "fsdp2": {
        "reshard_after_forward": True,
        "device_mesh": None,
        "state_dict_type": "sharded",
        "data_parallel_shard_degree": 4,
    },
}
