// Tested by tests/config/round_trip_test.cc.
#include "config/write_config.h"

#include <utility>

#include "config/dialects/accelerate/accelerate.h"
#include "config/dialects/composer/composer.h"
#include "config/dialects/torchtitan/torchtitan.h"
#include "config/dialects/transformers/transformers.h"

namespace fsdp {

namespace {

std::string TextInDialect(const TrainConfig& config, Dialect dialect,
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
    case Dialect::kAxolotl:
      findings.Problem(
          {},
          "configs of axolotl can be read, but not written: most of "
          "what they need is about its models and data");
      return "";
  }
  return "";
}

}  // namespace

std::string write_config(const TrainConfig& config, Dialect dialect,
                         Findings& findings) {
  Findings written;
  std::string text = TextInDialect(config, dialect, written);
  if (written.has_problems()) text.clear();
  findings.Append(std::move(written));
  return text;
}

}  // namespace fsdp
