// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/enum_messages.h"

#include <optional>

#include "gtest/gtest.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

TEST(EnumMessages, EveryFormatOfTheApiComesBack) {
  for (int i = v1::Format_MIN; i <= v1::Format_MAX; ++i) {
    const v1::Format proto = static_cast<v1::Format>(i);
    const std::optional<Format> format = FormatFromProto(proto);
    EXPECT_EQ(format.has_value(), proto != v1::FORMAT_UNSPECIFIED) << i;
    if (format.has_value()) {
      EXPECT_EQ(FormatToProto(*format), proto);
    }
  }
  EXPECT_EQ(FormatFromProto(static_cast<v1::Format>(77)), std::nullopt);
}

TEST(EnumMessages, EveryKindOfDifferenceComesBack) {
  for (int i = v1::DiffFinding::Kind_MIN; i <= v1::DiffFinding::Kind_MAX; ++i) {
    const auto proto = static_cast<v1::DiffFinding::Kind>(i);
    const std::optional<DiffFinding::Kind> kind = DiffKindFromProto(proto);
    EXPECT_EQ(kind.has_value(), proto != v1::DiffFinding::KIND_UNSPECIFIED)
        << i;
    if (kind.has_value()) {
      EXPECT_EQ(DiffKindToProto(*kind), proto);
    }
  }
}

}  // namespace
}  // namespace dcp
