// SPDX-License-Identifier: Apache-2.0

#include "config/dialect_table.h"

#include <optional>
#include <string>

#include "config/write_config.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

TEST(DialectTable, DialectsHaveNames) {
  ASSERT_EQ(all_dialects().size(), size_t{10});
  for (const ConfigDialect dialect : all_dialects()) {
    EXPECT_FALSE(dialect_name(dialect).empty());
    EXPECT_FALSE(dialect_program(dialect).empty());
    EXPECT_EQ(dialect_named(dialect_name(dialect)), dialect);
  }
  EXPECT_EQ(dialect_name(ConfigDialect::kAutomodel), "automodel");
  EXPECT_EQ(dialect_program(ConfigDialect::kAutomodel), "NeMo Automodel");
  EXPECT_EQ(dialect_named("deepspeed"), std::nullopt);
}

TEST(DialectTable, ReadOnlyDialectsAreNotWritten) {
  for (const ConfigDialect dialect : all_dialects()) {
    Findings findings;
    const std::string text = write_config(TrainConfig(), dialect, findings);
    EXPECT_EQ(text.empty(), !can_write(dialect)) << dialect_name(dialect);
    EXPECT_EQ(findings.has_problems(), !can_write(dialect));
  }
  Findings findings;
  (void)write_config(TrainConfig(), ConfigDialect::kVerl, findings);
  EXPECT_EQ(findings.list().back().text,
            "configs of verl can be read, but not written: most of their keys "
            "are about models and data");
}

}  // namespace
}  // namespace fsdp
