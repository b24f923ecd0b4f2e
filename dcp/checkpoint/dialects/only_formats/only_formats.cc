// SPDX-License-Identifier: Apache-2.0
// The dialects of a program that reads the formats alone: of tests that should
// not run again when a dialect changes.

#include "absl/types/span.h"
#include "dcp/checkpoint/dialects/formats/format_openers.h"
#include "dcp/checkpoint/dialects/parts/dialect_opener.h"
#include "dcp/checkpoint/files/dialect.h"

namespace dcp {
namespace {

constexpr DialectOpener kOpeners[] = {
    {Dialect::kDcp, &TryOpenDcp},
    {Dialect::kSafetensors, &TryOpenModel},
    {Dialect::kTorch, &TryOpenModel},
};

}  // namespace

absl::Span<const DialectOpener> DialectOpeners() { return kOpeners; }

}  // namespace dcp
