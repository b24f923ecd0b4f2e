#include "fsdp/config/write_config.h"

#include "fsdp/config/dialects.h"

namespace fsdp {

std::string write_config(const TrainConfig& config, Dialect dialect,
                         Findings& findings) {
  switch (dialect) {
    case Dialect::kAccelerate:
      return config::WriteAccelerate(config, findings);
    case Dialect::kTransformers:
      return config::WriteTransformers(config, findings);
    case Dialect::kComposer:
      return config::WriteComposer(config, findings);
    case Dialect::kTorchTitan:
      return config::WriteTorchTitan(config, findings);
  }
  return "";
}

}  // namespace fsdp
