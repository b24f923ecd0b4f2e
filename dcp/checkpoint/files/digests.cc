// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/digests.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/status.h"
#include "dcp/format/file/relative_path.h"

namespace dcp {
namespace {

constexpr absl::string_view kHeader = "tessera-digests 1 xxh3-64";
constexpr absl::string_view kName = ".digests";

// Takes the text up to the next `separator` from `rest`.
bool TakeField(absl::string_view& rest, char separator,
               absl::string_view& field) {
  const size_t end = rest.find(separator);
  if (end == absl::string_view::npos) return false;
  field = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return true;
}

bool ParseLine(absl::string_view line, ChunkDigest& digest) {
  absl::string_view hex;
  absl::string_view offset;
  absl::string_view length;
  if (!TakeField(line, ' ', hex) || !TakeField(line, ' ', offset) ||
      !TakeField(line, ' ', length)) {
    return false;
  }
  digest.file = std::string(line);
  return hex.size() == 16 && absl::SimpleHexAtoi(hex, &digest.digest) &&
         absl::SimpleAtoi(offset, &digest.offset) &&
         absl::SimpleAtoi(length, &digest.length) &&
         CheckedAdd(digest.offset, digest.length).has_value();
}

}  // namespace

std::string DigestsName(absl::string_view save_id) {
  return save_id.empty() ? std::string(kName)
                         : absl::StrCat(kName, "-", save_id);
}

bool IsDigestsName(absl::string_view name) {
  return name == kName || absl::StartsWith(name, absl::StrCat(kName, "-"));
}

std::string WriteDigests(std::vector<ChunkDigest> digests) {
  std::sort(digests.begin(), digests.end(),
            [](const ChunkDigest& a, const ChunkDigest& b) {
              return std::tie(a.file, a.offset, a.length, a.digest) <
                     std::tie(b.file, b.offset, b.length, b.digest);
            });
  std::string text = absl::StrCat(kHeader, "\n");
  for (const ChunkDigest& digest : digests) {
    absl::StrAppend(&text, absl::Hex(digest.digest, absl::kZeroPad16), " ",
                    digest.offset, " ", digest.length, " ", digest.file, "\n");
  }
  absl::StrAppend(&text, "end ", digests.size(), "\n");
  return text;
}

ChunkDigest MakeIndexDigest(absl::string_view name, absl::string_view index) {
  return {.file = std::string(name),
          .offset = 0,
          .length = index.size(),
          .digest = Xxh3Digest(AsBytes(index))};
}

absl::StatusOr<std::vector<ChunkDigest>> ParseDigests(absl::string_view text) {
  absl::string_view line;
  if (!TakeField(text, '\n', line) || line != kHeader) {
    return absl::DataLossError(
        absl::StrCat("digests: the first line is not '", kHeader, "'"));
  }
  std::vector<ChunkDigest> digests;
  while (TakeField(text, '\n', line)) {
    if (absl::StartsWith(line, "end ")) {
      if (line != absl::StrCat("end ", digests.size()) || !text.empty()) break;
      return digests;
    }
    const bool parsed = ParseLine(line, digests.emplace_back());
    // Entries of the same file follow each other.
    const bool known = digests.size() > 1 &&
                       digests.back().file == digests[digests.size() - 2].file;
    if (!parsed || (!known && !CheckRelativePath(digests.back().file).ok())) {
      return absl::DataLossError(
          absl::StrCat("digests: line ", digests.size() + 1, " is malformed"));
    }
  }
  return absl::DataLossError(
      absl::StrCat("digests: cut off after ", digests.size(), " lines"));
}

}  // namespace dcp
