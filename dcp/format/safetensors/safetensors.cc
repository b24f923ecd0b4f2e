// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/safetensors/safetensors.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/file/foreign_file.h"
#include "dcp/format/json/json.h"
#include "dcp/format/json/json_fields.h"

namespace dcp {
namespace {

using EventKind = JsonEvent::Kind;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kHeaderAlignment = 8;
constexpr absl::string_view kMetadataKey = "__metadata__";

// {"name": {"dtype": ..., "shape": [...], "data_offsets": [b, e]}, ...,
// "__metadata__": {"key": "value", ...}}. A tensor's other fields are ignored,
// as in the reference reader.
class HeaderParser {
 public:
  explicit HeaderParser(SafetensorsHeader& header) : header_(header) {}

  absl::Status Handle(const JsonEvent& event) {
    switch (event.depth) {
      case 0:
        return event.kind == EventKind::kBeginObject ||
                       event.kind == EventKind::kEndObject
                   ? absl::OkStatus()
                   : MisplacedJson("header");
      case 1:
        return HandleEntry(event);
      default:
        return in_metadata_ ? HandleMetadata(event) : HandleField(event);
    }
  }

 private:
  absl::Status HandleEntry(const JsonEvent& event) {
    switch (event.kind) {
      case EventKind::kKey:
        name_ = std::string(event.text);
        in_metadata_ = name_ == kMetadataKey;
        if (in_metadata_ && has_metadata_) {
          return absl::DataLossError("__metadata__ occurs twice");
        }
        has_metadata_ = has_metadata_ || in_metadata_;
        return absl::OkStatus();
      case EventKind::kNull:
        // The reference reader takes it for an empty object.
        return in_metadata_ ? absl::OkStatus()
                            : MisplacedJson(ShortJson(name_));
      case EventKind::kBeginObject:
        dtype_.reset();
        shape_ = {};
        data_offsets_ = {};
        return absl::OkStatus();
      case EventKind::kEndObject:
        return in_metadata_ ? absl::OkStatus() : FinishTensor();
      default:
        return MisplacedJson(ShortJson(name_));
    }
  }

  absl::Status HandleMetadata(const JsonEvent& event) {
    if (event.kind == EventKind::kKey) {
      field_ = std::string(event.text);
      return absl::OkStatus();
    }
    if (event.kind != EventKind::kString) {
      return absl::DataLossError(
          absl::StrCat("__metadata__ ", ShortJson(field_), " is not a string"));
    }
    header_.metadata.emplace_back(field_, event.text);
    return absl::OkStatus();
  }

  absl::Status HandleField(const JsonEvent& event) {
    if (event.depth == 2 && event.kind == EventKind::kKey) {
      field_ = std::string(event.text);
      const bool again = (field_ == "dtype" && dtype_.has_value()) ||
                         (field_ == "shape" && shape_.begun()) ||
                         (field_ == "data_offsets" && data_offsets_.begun());
      if (!again) return absl::OkStatus();
      return absl::DataLossError(
          absl::StrCat(ShortJson(name_), " has its ", field_, " twice"));
    }
    if (field_ == "dtype") return HandleDType(event);
    if (field_ == "shape") return shape_.Take(event, ShortJson(name_));
    if (field_ == "data_offsets") {
      return data_offsets_.Take(event, ShortJson(name_));
    }
    return absl::OkStatus();
  }

  absl::Status HandleDType(const JsonEvent& event) {
    if (event.kind != EventKind::kString)
      return MisplacedJson(ShortJson(name_));
    dtype_ = DTypeFromSafetensorsName(event.text);
    if (dtype_.has_value()) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat(ShortJson(name_), " has the dtype ", ShortJson(event.text),
                     ", which PyTorch does not know"));
  }

  absl::Status FinishTensor() {
    const std::vector<uint64_t>& offsets = data_offsets_.values();
    if (!dtype_.has_value() || !shape_.begun() || offsets.size() != 2) {
      return absl::DataLossError(absl::StrCat(
          ShortJson(name_), " lacks its dtype, shape or data_offsets"));
    }
    if (name_.size() > kMaxNameBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a tensor name of ", name_.size(), " bytes exceeds ", kMaxNameBytes));
    }
    header_.tensors.push_back({.name = name_,
                               .dtype = *dtype_,
                               .shape = shape_.values(),
                               .begin = offsets[0],
                               .end = offsets[1]});
    return absl::OkStatus();
  }

  SafetensorsHeader& header_;
  std::string name_;
  std::string field_;
  bool in_metadata_ = false;
  bool has_metadata_ = false;
  std::optional<DType> dtype_;
  JsonNumbers<Dims, kMaxDims> shape_;
  JsonNumbers<std::vector<uint64_t>, 2> data_offsets_;
};

// The file counts two float4 elements as two; torch counts them as one
// float4_e2m1fn_x2 element.
absl::Status PackShape(SafetensorsTensor& tensor) {
  if (tensor.dtype != DType::kFloat4E2M1FNX2) return absl::OkStatus();
  if (tensor.shape.empty() || tensor.shape.back() % 2 != 0) {
    return absl::DataLossError(absl::StrCat(
        ShortJson(tensor.name), ": F4 of shape ", ShapeToString(tensor.shape),
        " does not fill whole bytes"));
  }
  tensor.shape.back() /= 2;
  return absl::OkStatus();
}

absl::Status CheckTensorSize(const SafetensorsTensor& tensor) {
  const std::optional<int64_t> volume = CheckedVolume(tensor.shape);
  const std::optional<uint64_t> bytes =
      volume.has_value() ? CheckedMul(static_cast<uint64_t>(*volume),
                                      ElementSize(tensor.dtype))
                         : std::nullopt;
  if (!bytes.has_value() || tensor.end < tensor.begin ||
      tensor.end - tensor.begin != *bytes) {
    return absl::DataLossError(absl::StrCat(
        ShortJson(tensor.name), ": data_offsets [", tensor.begin, ", ",
        tensor.end, "] are not those of ", TorchName(tensor.dtype), " ",
        ShapeToString(tensor.shape)));
  }
  return absl::OkStatus();
}

// Sorts the tensors and checks that they tile the data section.
absl::Status CheckTiling(uint64_t data_length, SafetensorsHeader& header) {
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
                     return std::pair(a.begin, a.end) <
                            std::pair(b.begin, b.end);
                   });
  absl::flat_hash_set<absl::string_view> names;
  names.reserve(header.tensors.size());
  uint64_t at = 0;
  for (SafetensorsTensor& tensor : header.tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::DataLossError(
          absl::StrCat(ShortJson(tensor.name), " occurs twice"));
    }
    DCP_RETURN_IF_ERROR(PackShape(tensor));
    DCP_RETURN_IF_ERROR(CheckTensorSize(tensor));
    if (tensor.begin != at) {
      return absl::DataLossError(
          absl::StrCat(ShortJson(tensor.name), " begins at ", tensor.begin,
                       ", but the data before it ends at ", at));
    }
    at = tensor.end;
  }
  if (at != data_length) {
    return absl::DataLossError(absl::StrCat("the tensors have ", at,
                                            " bytes, but the data section has ",
                                            data_length));
  }
  return absl::OkStatus();
}

// Fills saved_offsets from the metadata, for this file's tensors.
absl::Status ReadShardingInfo(SafetensorsHeader& header) {
  absl::flat_hash_set<absl::string_view> keys;
  const std::string* info = nullptr;
  for (const auto& [key, value] : header.metadata) {
    if (!keys.insert(key).second) {
      return absl::DataLossError(
          absl::StrCat("__metadata__ has ", ShortJson(key), " twice"));
    }
    if (key == kShardingInfoKey) info = &value;
  }
  if (info == nullptr) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(const SavedOffsets offsets, ParseShardingInfo(*info));
  for (const SafetensorsTensor& tensor : header.tensors) {
    const auto it = offsets.find(tensor.name);
    if (it == offsets.end()) {
      return absl::DataLossError(
          absl::StrCat(kShardingInfoKey, " lacks ", ShortJson(tensor.name)));
    }
    bool sound = it->second.size() == tensor.shape.size();
    for (size_t i = 0; sound && i < tensor.shape.size(); ++i) {
      int64_t end;
      sound = !__builtin_add_overflow(it->second[i], tensor.shape[i], &end);
    }
    if (!sound) {
      return absl::DataLossError(absl::StrCat(
          kShardingInfoKey, " has impossible offsets for ",
          ShortJson(tensor.name), " of shape ", ShapeToString(tensor.shape),
          ": ", ShapeToString(it->second)));
    }
    header.saved_offsets.emplace(tensor.name, it->second);
  }
  return absl::OkStatus();
}

// [Note: digests in a header] The value has a fixed width, so that the header
// can be written before the payload is known:
//
//   "xxh3-64:" <16 hex digits: the header> <16 hex digits: a tensor>...
//
// The first digest covers the whole header, including length word and padding,
// with all of these digits zero. Other programs copy __metadata__ to files with
// other tensors, and digests copied that way mean nothing, so a header's form
// says whether it is ours: it begins with the digests, and it has 8 more spaces
// than the alignment requires, which no other writer adds. A header in that
// form is damaged if the digest differs from the recorded one.
constexpr absl::string_view kDigestsPrefix = "xxh3-64:";
constexpr size_t kDigestDigits = 16;
constexpr size_t kExtraPadding = kHeaderAlignment;
// The most damaged bytes at the beginning. With more, it counts as another
// program's.
constexpr size_t kMaxDamagedBytes = 4;

// The beginning of a header with digests, after the length word.
std::string DigestsStart() {
  return absl::StrCat("{\"", kMetadataKey, "\":{\"", kSafetensorsDigestsKey,
                      "\":\"", kDigestsPrefix);
}

// Whether our writer made `header`, a whole header, with digests; some bits in
// it may have flipped since then.
bool IsOurs(absl::string_view header) {
  const std::string start = DigestsStart();
  if (header.size() < kLengthBytes + start.size() + kExtraPadding) return false;
  const absl::string_view found = header.substr(kLengthBytes, start.size());
  size_t num_differences = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    if (found[i] != start[i]) ++num_differences;
  }
  return num_differences <= kMaxDamagedBytes &&
         header.substr(header.size() - kExtraPadding) ==
             std::string(kExtraPadding, ' ');
}

// The digests' digits in `header`, which is ours.
absl::string_view FindDigests(absl::string_view header) {
  const absl::string_view rest =
      header.substr(kLengthBytes + DigestsStart().size());
  return rest.substr(0, rest.find('"'));
}

// The digest of `header` with `digits`, which is a part of it, set to zero.
uint64_t DigestWithout(absl::string_view digits, absl::string_view header) {
  const size_t begin = static_cast<size_t>(digits.data() - header.data());
  Digest64 digest;
  digest.Update(AsBytes(header.substr(0, begin)));
  digest.Update(AsBytes(std::string(digits.size(), '0')));
  digest.Update(AsBytes(header.substr(begin + digits.size())));
  return digest.Value();
}

// The digests of the header and each tensor; nullopt unless `digits` contains
// exactly that many.
std::optional<std::vector<uint64_t>> ParseDigits(absl::string_view digits,
                                                 size_t num_tensors) {
  if (digits.size() != kDigestDigits * (1 + num_tensors) ||
      digits.find_first_not_of("0123456789abcdef") != absl::string_view::npos) {
    return std::nullopt;
  }
  std::vector<uint64_t> digests;
  for (size_t i = 0; i < digits.size(); i += kDigestDigits) {
    const bool read = absl::SimpleHexAtoi(digits.substr(i, kDigestDigits),
                                          &digests.emplace_back());
    DCP_CHECK(read, "16 hex digits");
  }
  return digests;
}

// Moves the digests out of the metadata in `header`, which was read from
// `text`, keeps them if our writer made the header, and says whether it is
// damaged.
void TakeDigests(absl::string_view text, SafetensorsHeader& header) {
  if (!IsOurs(text)) {
    std::erase_if(header.metadata, [](const auto& pair) {
      return pair.first == kSafetensorsDigestsKey;
    });
    return;
  }
  // The key may be damaged, but it is the first.
  if (!header.metadata.empty()) header.metadata.erase(header.metadata.begin());
  const absl::string_view digits = FindDigests(text);
  // A store that cannot change an object keeps the header as it was written
  // first.
  if (digits.find_first_not_of('0') == absl::string_view::npos) return;
  const std::optional<std::vector<uint64_t>> digests =
      ParseDigits(digits, header.tensors.size());
  if (!digests.has_value()) {
    header.damage = "the header is damaged: its digests cannot be read";
    return;
  }
  header.digests.assign(digests->begin() + 1, digests->end());
  const uint64_t digest = DigestWithout(digits, text);
  if (digest == digests->front()) return;
  header.damage = absl::StrFormat(
      "the header is damaged: its digest is %016x, recorded %016x", digest,
      digests->front());
}

void AppendTensor(const SafetensorsTensor& tensor, std::string& json) {
  const absl::string_view dtype = SafetensorsName(tensor.dtype);
  DCP_CHECK(!dtype.empty(), "dtype ", TorchName(tensor.dtype));
  Dims shape = tensor.shape;
  if (tensor.dtype == DType::kFloat4E2M1FNX2) {
    DCP_CHECK(!shape.empty(), tensor.name);
    shape.back() *= 2;
  }
  absl::StrAppend(&json, QuoteJson(tensor.name), ":{\"dtype\":\"", dtype,
                  "\",\"shape\":[");
  for (size_t i = 0; i < shape.size(); ++i) {
    absl::StrAppend(&json, i == 0 ? "" : ",", shape[i]);
  }
  absl::StrAppend(&json, "],\"data_offsets\":[", tensor.begin, ",", tensor.end,
                  "]}");
}

// For a file of `length` bytes that does not begin with a header's length.
absl::Status BadLength(uint64_t json_length, uint64_t length, ReadAt read) {
  DCP_ASSIGN_OR_RETURN(const ByteSpan head,
                       read(0, std::min<uint64_t>(length, kForeignHeadBytes)));
  const std::string foreign = ForeignContent(AsText(head));
  if (!foreign.empty()) {
    return absl::DataLossError(
        absl::StrCat("not a safetensors file: it looks like ", foreign));
  }
  if (json_length > kMaxSafetensorsHeaderBytes) {
    return absl::DataLossError(absl::StrCat("header length ", json_length,
                                            " exceeds ",
                                            kMaxSafetensorsHeaderBytes));
  }
  return absl::DataLossError(absl::StrCat("header length ", json_length,
                                          " does not fit into a file of ",
                                          length, " bytes"));
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(uint64_t length,
                                                        ReadAt read) {
  if (length < kLengthBytes) {
    return absl::DataLossError(absl::StrCat(
        "a file of ", length, " bytes is too short for safetensors"));
  }
  DCP_ASSIGN_OR_RETURN(const ByteSpan word, read(0, kLengthBytes));
  const uint64_t json_length = LoadLittleEndian<uint64_t>(word.data());
  if (json_length > kMaxSafetensorsHeaderBytes ||
      json_length > length - kLengthBytes) {
    return BadLength(json_length, length, read);
  }
  DCP_ASSIGN_OR_RETURN(const ByteSpan head,
                       read(0, kLengthBytes + json_length));
  const ByteSpan json = head.subspan(kLengthBytes);
  // The JSON parser passes over a byte order mark, the reference reader does
  // not.
  if (absl::StartsWith(AsText(json), "\xEF\xBB\xBF")) {
    return absl::DataLossError("header begins with a byte order mark");
  }
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + json_length;
  HeaderParser parser(header);
  DCP_RETURN_IF_ERROR(Annotate(
      ParseJson(AsText(json),
                [&](const JsonEvent& event) { return parser.Handle(event); }),
      "header"));
  DCP_RETURN_IF_ERROR(CheckTiling(length - header.data_offset, header));
  DCP_RETURN_IF_ERROR(ReadShardingInfo(header));
  TakeDigests(AsText(head), header);
  return header;
}

std::string WriteSafetensorsHeader(
    absl::Span<const SafetensorsTensor> tensors,
    absl::Span<const std::pair<std::string, std::string>> metadata,
    bool room_for_digests) {
  std::string out(kLengthBytes, '\0');
  if (room_for_digests) {
    absl::StrAppend(&out, DigestsStart(),
                    std::string(kDigestDigits * (1 + tensors.size()), '0'),
                    "\"");
  } else {
    out += '{';
    if (!metadata.empty()) absl::StrAppend(&out, QuoteJson(kMetadataKey), ":{");
  }
  if (room_for_digests || !metadata.empty()) {
    for (size_t i = 0; i < metadata.size(); ++i) {
      absl::StrAppend(&out, i == 0 && !room_for_digests ? "" : ",",
                      QuoteJson(metadata[i].first), ":",
                      QuoteJson(metadata[i].second));
    }
    out += tensors.empty() ? "}" : "},";
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i != 0) out += ',';
    AppendTensor(tensors[i], out);
  }
  out += '}';
  out.resize(AlignUp(out.size(), kHeaderAlignment), ' ');
  // See [Note: digests in a header].
  if (room_for_digests) out.append(kExtraPadding, ' ');
  const uint64_t json_length = out.size() - kLengthBytes;
  __builtin_memcpy(out.data(), &json_length, kLengthBytes);
  return out;
}

void PutSafetensorsDigests(absl::Span<const uint64_t> digests,
                           std::string& header) {
  const absl::string_view room = FindDigests(header);
  DCP_CHECK(room.size() == kDigestDigits * (1 + digests.size()),
            "room=", room.size(), " digests=", digests.size());
  std::string digits =
      absl::StrCat(absl::Hex(DigestWithout(room, header), absl::kZeroPad16));
  for (const uint64_t digest : digests) {
    absl::StrAppend(&digits, absl::Hex(digest, absl::kZeroPad16));
  }
  header.replace(static_cast<size_t>(room.data() - header.data()), room.size(),
                 digits);
}

}  // namespace dcp
