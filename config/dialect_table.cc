// SPDX-License-Identifier: Apache-2.0
// The table itself.
//
// Tested by tests/config/dialect_table_test.cc.
#include "config/dialect_table.h"

#include <algorithm>
#include <iterator>

#include "config/dialects/accelerate/accelerate.h"
#include "config/dialects/automodel/automodel.h"
#include "config/dialects/axolotl/axolotl.h"
#include "config/dialects/composer/composer.h"
#include "config/dialects/llama_factory/llama_factory.h"
#include "config/dialects/prime_rl/prime_rl.h"
#include "config/dialects/torchtitan/torchtitan.h"
#include "config/dialects/torchtune/torchtune.h"
#include "config/dialects/transformers/transformers.h"
#include "config/dialects/verl/verl.h"
#include "dcp/base/check.h"

namespace fsdp {
namespace config {
namespace {

constexpr DialectRow kDialects[] = {
    {ConfigDialect::kAccelerate, "accelerate", "accelerate", ReadAccelerate,
     WriteAccelerate},
    {ConfigDialect::kTransformers, "transformers", "transformers",
     ReadTransformers, WriteTransformers},
    {ConfigDialect::kComposer, "composer", "Composer", ReadComposer,
     WriteComposer},
    {ConfigDialect::kTorchTitan, "torchtitan", "TorchTitan", ReadTorchTitan,
     WriteTorchTitan},
    {ConfigDialect::kAxolotl, "axolotl", "axolotl", ReadAxolotl, nullptr},
    {ConfigDialect::kTorchtune, "torchtune", "torchtune", ReadTorchtune,
     nullptr},
    {ConfigDialect::kVerl, "verl", "verl", ReadVerl, nullptr},
    {ConfigDialect::kAutomodel, "automodel", "NeMo Automodel", ReadAutomodel,
     nullptr},
    {ConfigDialect::kPrimeRl, "prime-rl", "prime-rl", ReadPrimeRl, nullptr},
    {ConfigDialect::kLlamaFactory, "llama-factory", "LLaMA-Factory",
     ReadLlamaFactory, nullptr},
};

}  // namespace

absl::Span<const DialectRow> DialectTable() { return kDialects; }

const DialectRow& GetRow(ConfigDialect dialect) {
  const auto row = std::find_if(
      std::begin(kDialects), std::end(kDialects),
      [dialect](const DialectRow& known) { return known.dialect == dialect; });
  DCP_CHECK(row != std::end(kDialects), "a dialect has no row");
  return *row;
}

}  // namespace config

std::vector<ConfigDialect> all_dialects() {
  std::vector<ConfigDialect> dialects;
  for (const config::DialectRow& row : config::DialectTable()) {
    dialects.push_back(row.dialect);
  }
  return dialects;
}

absl::string_view dialect_name(ConfigDialect dialect) {
  return config::GetRow(dialect).name;
}

std::optional<ConfigDialect> dialect_named(absl::string_view name) {
  for (const config::DialectRow& row : config::DialectTable()) {
    if (row.name == name) return row.dialect;
  }
  return std::nullopt;
}

absl::string_view dialect_program(ConfigDialect dialect) {
  return config::GetRow(dialect).program;
}

}  // namespace fsdp
