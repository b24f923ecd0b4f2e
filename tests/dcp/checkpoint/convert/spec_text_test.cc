// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/spec_text.h"

#include <functional>
#include <set>

#include "gtest/gtest.h"

namespace dcp {
namespace {

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
