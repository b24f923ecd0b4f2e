#include "config/model/train_config.h"

#include <array>
#include <utility>

namespace fsdp {
namespace {

constexpr std::array<std::pair<Dialect, absl::string_view>, 5> kDialects = {{
    {Dialect::kAccelerate, "accelerate"},
    {Dialect::kTransformers, "transformers"},
    {Dialect::kComposer, "composer"},
    {Dialect::kTorchTitan, "torchtitan"},
    {Dialect::kAxolotl, "axolotl"},
}};

}  // namespace

absl::string_view name_of(Dialect dialect) {
  for (const auto& [known, name] : kDialects) {
    if (known == dialect) return name;
  }
  return "";
}

std::optional<Dialect> dialect_named(absl::string_view name) {
  for (const auto& [dialect, known] : kDialects) {
    if (known == name) return dialect;
  }
  return std::nullopt;
}

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
