// SPDX-License-Identifier: Apache-2.0

#include "proto/request_field.h"

#include <utility>

#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(RequestField, IsThePathOfTheFieldThatSetsTheOption) {
  for (const auto& [option, field] : {
           std::pair("overwrite", "destination.overwrite"),
           std::pair("to", "format"),
           std::pair("max_shard_bytes", "max_shard_bytes"),
           std::pair("memory_bytes", "options.memory_bytes"),
           std::pair("parts", "selection.parts"),
           std::pair("from", "source.dialect.from"),
           std::pair("rank", "source.rank"),
           std::pair("allow_missing", "source.map.allow_missing"),
           std::pair("copy_config", "no_copy_config"),
           std::pair("verify", "options.no_verify"),
       }) {
    EXPECT_EQ(RequestField(option), field);
    EXPECT_EQ(RequestOption(field), option);
  }
}

TEST(RequestField, IsEmptyForAnOptionThatRequestsLack) {
  EXPECT_EQ(RequestField("decode"), "");
  EXPECT_EQ(RequestField(""), "");
}

}  // namespace
}  // namespace dcp
