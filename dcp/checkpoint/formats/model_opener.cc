// SPDX-License-Identifier: Apache-2.0
// Detects a file's format from the first bytes and calls that opener.
// Tested by tests/dcp/checkpoint/open/checkpoint_test.cc.
#include "dcp/checkpoint/formats/model_opener.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/formats/safetensors_opener.h"
#include "dcp/checkpoint/formats/torch_opener.h"

namespace dcp {
namespace {

// The file's first bytes; zeros if it is shorter.
struct FileHead {
  uint8_t bytes[512] = {};
  uint64_t file_size = 0;

  bool IsSafetensors() const {
    const absl::string_view json = absl::StripLeadingAsciiWhitespace(
        absl::string_view(reinterpret_cast<const char*>(bytes), sizeof(bytes))
            .substr(8));
    return absl::StartsWith(json, "{") &&
           LoadLittleEndian<uint64_t>(bytes) < file_size;
  }
  bool IsTorch() const;
};

absl::StatusOr<FileHead> ReadHead(FileSystem& fs, absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(
      const File file,
      fs.OpenForRead(path, DirectMode::kOff, /*follow_symlinks=*/true));
  FileHead head;
  head.file_size = file.size;
  const uint64_t length = std::min<uint64_t>(sizeof(head.bytes), file.size);
  const absl::Status read =
      fs.Read(file, 0, MutableByteSpan(head.bytes, length));
  DCP_RETURN_IF_ERROR(fs.Close(file));
  DCP_RETURN_IF_ERROR(Annotate(read, path));
  return head;
}

// True for a zip archive that begins with a record that torch.save writes first
// ("<name>/data.pkl" or a few others), and for the magic number, as a pickle,
// that PyTorch wrote before 1.6.
bool FileHead::IsTorch() const {
  const absl::string_view text(reinterpret_cast<const char*>(bytes),
                               sizeof(bytes));
  constexpr absl::string_view kLegacyMagic(
      "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 15);
  if (absl::StartsWith(text, kLegacyMagic)) return true;
  constexpr size_t kNameOffset = 30;  // in a zip's local header
  if (!absl::StartsWith(text, "PK\x03\x04")) return false;
  const absl::string_view name =
      text.substr(kNameOffset, LoadLittleEndian<uint16_t>(bytes + 26));
  for (const absl::string_view record :
       {"/data.pkl", "/constants.pkl", "/version", "/byteorder",
        "/.format_version", "/.storage_alignment"}) {
    if (absl::EndsWith(name, record)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<CheckpointParts> OpenModel(FileSystem& fs,
                                          const ModelFiles& model,
                                          const OpenOptions& options,
                                          const std::stop_token& stop) {
  const std::string first = JoinPath(model.directory, model.names[0]);
  DCP_ASSIGN_OR_RETURN(const FileHead head, ReadHead(fs, first));
  return absl::EndsWith(first, ".safetensors") || head.IsSafetensors()
             ? OpenSafetensors(fs, model, options, stop)
             : OpenTorch(fs, model, options, stop);
}

absl::StatusOr<bool> IsCheckpointFile(FileSystem& fs, absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const FileHead head, ReadHead(fs, path));
  return head.IsSafetensors() || head.IsTorch();
}

}  // namespace dcp
