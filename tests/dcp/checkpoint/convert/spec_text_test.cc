// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/spec_text.h"

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/mapping/application/mapping.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

// A mean of two checkpoints, without rules.
std::shared_ptr<const MapSpec> Mean(double source_weight, double weight) {
  absl::StatusOr<Mapping> mapping = ParseMapping(
      "tessera-mapping: 1\nname: n\nsides:\n  a:\n  b:\n"
      "rules:\n- {a: x, b: x}\n",
      "test");
  EXPECT_OK(mapping.status());
  MapSpec spec{.mapping = *std::move(mapping), .options = {}};
  spec.source_weight = source_weight;
  spec.average = {{.path = "b", .weight = weight}};
  return std::make_shared<const MapSpec>(std::move(spec));
}

TEST(SpecText, DiffersWithEachFieldThatDecidesBytes) {
  const std::function<void(ConvertSpec&)> changes[] = {
      [](ConvertSpec&) {},
      [](ConvertSpec& spec) { spec.open.rank = 1; },
      [](ConvertSpec& spec) { spec.open.dialect.from = Dialect::kDcp; },
      [](ConvertSpec& spec) { spec.open.dialect.unstack_layers = true; },
      [](ConvertSpec& spec) { spec.selection.parts = {StatePart::kModel}; },
      [](ConvertSpec& spec) {
        spec.selection.include = {"a", "b"};
      },
      [](ConvertSpec& spec) { spec.selection.include = {"a"}; },
      [](ConvertSpec& spec) { spec.selection.exclude = {"a"}; },
      [](ConvertSpec& spec) { spec.drop_non_tensors = true; },
      [](ConvertSpec& spec) { spec.drop_metadata = true; },
      [](ConvertSpec& spec) {
        spec.metadata = {{"a", "b"}};
      },
      [](ConvertSpec& spec) {
        spec.metadata = {{"a", "b\n"}};
      },
      [](ConvertSpec& spec) { spec.copy_config = false; },
      [](ConvertSpec& spec) { spec.check_padding = true; },
      [](ConvertSpec& spec) { spec.open.map = Mean(1, 1); },
      [](ConvertSpec& spec) { spec.open.map = Mean(1, 1 + 1e-15); },
      [](ConvertSpec& spec) { spec.open.map = Mean(2, 1); },
  };
  std::set<std::string> texts;
  for (const auto& change : changes) {
    ConvertSpec spec;
    change(spec);
    EXPECT_TRUE(texts.insert(SpecText(spec)).second) << SpecText(spec);
  }
}

TEST(SpecText, StaysTheSameForWhatDecidesNoByte) {
  ConvertSpec spec;
  spec.open.check_index = false;
  spec.open.dialect.layout = "/here/layout.json";
  spec.overwrite = true;
  spec.verify = false;
  spec.strict_cast = true;
  spec.allow_losses = true;
  spec.assets = "/here/assets";
  EXPECT_EQ(SpecText(spec), SpecText(ConvertSpec()));
}

}  // namespace
}  // namespace dcp
