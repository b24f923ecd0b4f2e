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
    {Dialect::kAccelerate, "accelerate", "accelerate", ReadAccelerate,
     WriteAccelerate},
    {Dialect::kTransformers, "transformers", "transformers", ReadTransformers,
     WriteTransformers},
    {Dialect::kComposer, "composer", "Composer", ReadComposer, WriteComposer},
    {Dialect::kTorchTitan, "torchtitan", "TorchTitan", ReadTorchTitan,
     WriteTorchTitan},
    {Dialect::kAxolotl, "axolotl", "axolotl", ReadAxolotl, nullptr},
    {Dialect::kTorchtune, "torchtune", "torchtune", ReadTorchtune, nullptr},
    {Dialect::kVerl, "verl", "verl", ReadVerl, nullptr},
    {Dialect::kAutomodel, "automodel", "NeMo Automodel", ReadAutomodel,
     nullptr},
    {Dialect::kPrimeRl, "prime-rl", "prime-rl", ReadPrimeRl, nullptr},
    {Dialect::kLlamaFactory, "llama-factory", "LLaMA-Factory", ReadLlamaFactory,
     nullptr},
};

}  // namespace

absl::Span<const DialectRow> DialectTable() { return kDialects; }

const DialectRow& GetRow(Dialect dialect) {
  const auto row = std::find_if(
      std::begin(kDialects), std::end(kDialects),
      [dialect](const DialectRow& known) { return known.dialect == dialect; });
  DCP_CHECK(row != std::end(kDialects), "a dialect has no row");
  return *row;
}

}  // namespace config

std::vector<Dialect> all_dialects() {
  std::vector<Dialect> dialects;
  for (const config::DialectRow& row : config::DialectTable()) {
    dialects.push_back(row.dialect);
  }
  return dialects;
}

absl::string_view dialect_name(Dialect dialect) {
  return config::GetRow(dialect).name;
}

std::optional<Dialect> dialect_named(absl::string_view name) {
  for (const config::DialectRow& row : config::DialectTable()) {
    if (row.name == name) return row.dialect;
  }
  return std::nullopt;
}

absl::string_view dialect_program(Dialect dialect) {
  return config::GetRow(dialect).program;
}

}  // namespace fsdp
