// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/enum_messages.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

template <typename Ours, typename Proto>
struct Pair {
  Ours ours;
  Proto proto;
};

constexpr Pair<Format, v1::Format> kFormats[] = {
    {Format::kDcp, v1::FORMAT_DCP},
    {Format::kSafetensors, v1::FORMAT_SAFETENSORS},
    {Format::kTorch, v1::FORMAT_TORCH},
};

constexpr Pair<DiffFinding::Kind, v1::DiffFinding::Kind> kDiffKinds[] = {
    {DiffFinding::Kind::kOnlyInA, v1::DiffFinding::KIND_ONLY_IN_A},
    {DiffFinding::Kind::kOnlyInB, v1::DiffFinding::KIND_ONLY_IN_B},
    {DiffFinding::Kind::kKind, v1::DiffFinding::KIND_KIND},
    {DiffFinding::Kind::kShape, v1::DiffFinding::KIND_SHAPE},
    {DiffFinding::Kind::kDType, v1::DiffFinding::KIND_DTYPE},
    {DiffFinding::Kind::kValues, v1::DiffFinding::KIND_VALUES},
    {DiffFinding::Kind::kObject, v1::DiffFinding::KIND_OBJECT},
    {DiffFinding::Kind::kContainer, v1::DiffFinding::KIND_CONTAINER},
};

// `unspecified` for a value that is not in the table.
template <typename Table, typename Ours, typename Proto>
Proto ProtoValue(const Table& table, Ours ours, Proto unspecified) {
  for (const auto& pair : table) {
    if (pair.ours == ours) return pair.proto;
  }
  return unspecified;
}

template <typename Ours, typename Proto, size_t kSize>
std::optional<Ours> OurValue(const Pair<Ours, Proto> (&table)[kSize],
                             Proto proto) {
  for (const Pair<Ours, Proto>& pair : table) {
    if (pair.proto == proto) return pair.ours;
  }
  return std::nullopt;
}

}  // namespace

v1::Format FormatToProto(Format format) {
  return ProtoValue(kFormats, format, v1::FORMAT_UNSPECIFIED);
}

std::optional<Format> FormatFromProto(v1::Format format) {
  return OurValue(kFormats, format);
}

v1::DiffFinding::Kind DiffKindToProto(DiffFinding::Kind kind) {
  return ProtoValue(kDiffKinds, kind, v1::DiffFinding::KIND_UNSPECIFIED);
}

std::optional<DiffFinding::Kind> DiffKindFromProto(v1::DiffFinding::Kind kind) {
  return OurValue(kDiffKinds, kind);
}

}  // namespace dcp
