// SPDX-License-Identifier: Apache-2.0

#include "config/model/train_config.h"

namespace fsdp {

bool same_training(const TrainConfig& a, const TrainConfig& b) {
  ShardingConfig sharding = a.sharding;
  sharding.fsdp_version = b.sharding.fsdp_version;
  MeshConfig mesh = a.mesh;
  mesh.requires_shards = b.mesh.requires_shards;
  return mesh == b.mesh && a.precision == b.precision &&
         sharding == b.sharding && a.checkpoint == b.checkpoint &&
         a.loop == b.loop;
}

}  // namespace fsdp
