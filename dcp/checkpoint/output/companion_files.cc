// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/output/companion_files.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/files/hub_folder.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/checkpoint/output/object_pickle.h"
#include "dcp/format/file/relative_path.h"
#include "dcp/format/json/json_value.h"
#include "dcp/format/json/model_config_edits.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {
namespace {

// The files that from_pretrained reads for a model, a tokenizer, a processor or
// an adapter.
constexpr absl::string_view kCompanionNames[] = {
    "adapter_config.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "config_sentence_transformers.json",
    "generation_config.json",
    "merges.txt",
    "modules.json",
    "normalizer.json",
    "preprocessor_config.json",
    "processor_config.json",
    "sentence_bert_config.json",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tekken.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
    "vocab.json",
    "vocab.txt",
};

// verl and SkyRL keep them in this folder, next to the ranks' files.
constexpr absl::string_view kFolder = "huggingface";

// Lists a sentence-transformers model's modules: objects, each with a folder's
// "path".
constexpr absl::string_view kModulesName = "modules.json";
constexpr uint64_t kMaxModulesBytes = uint64_t{1} << 20;
constexpr absl::string_view kWeightSuffixes[] = {".safetensors", ".bin"};

// The model's configuration. It is searched for types only up to this size; one
// with labels for 22,000 classes has 2 MB.
constexpr absl::string_view kModelConfigName = "config.json";
constexpr uint64_t kMaxConfigBytes = kBlockBytes;

// A snapshot's files lie here in a model hub's cache.
constexpr absl::string_view kHubBlobs = "../../blobs";

using FileIds = absl::flat_hash_set<std::pair<uint64_t, uint64_t>>;

std::pair<uint64_t, uint64_t> FileIdentity(const FileInfo& info) {
  return {info.device, info.inode};
}

// The regular files in `directory`; none if it is a link or cannot be read.
FileIds RegularFilesIn(FileSystem& fs, const std::string& directory) {
  FileIds ids;
  const absl::StatusOr<std::vector<DirectoryEntry>> entries =
      fs.List(directory);
  if (!entries.ok()) return ids;
  for (const DirectoryEntry& entry : *entries) {
    if (entry.kind != FileKind::kFile) continue;
    const absl::StatusOr<FileInfo> info =
        fs.Stat(JoinPath(directory, entry.name));
    if (info.ok() && info->kind == FileKind::kFile)
      ids.insert(FileIdentity(*info));
  }
  return ids;
}

// Whether an open file belongs to the model. Checks the open file and not the
// path, so that a link made in between cannot lead elsewhere.
class Belongs {
 public:
  Belongs(FileSystem& fs, std::string directory,
          absl::Span<const std::string> folders)
      : fs_(fs),
        directory_(std::move(directory)),
        folders_(folders.begin(), folders.end()) {}

  bool operator()(const FileInfo& opened) {
    if (!here_.has_value()) {
      here_ = RegularFilesIn(fs_, directory_);
      for (const std::string& folder : folders_) {
        here_->merge(RegularFilesIn(fs_, JoinPath(directory_, folder)));
      }
    }
    if (here_->contains(FileIdentity(opened))) return true;
    if (!blobs_.has_value()) {
      const std::string blobs = JoinPath(directory_, kHubBlobs);
      const absl::StatusOr<FileInfo> info = fs_.Stat(blobs);
      const bool is_directory = info.ok() && info->kind == FileKind::kDirectory;
      blobs_ = is_directory ? RegularFilesIn(fs_, blobs) : FileIds();
    }
    return blobs_->contains(FileIdentity(opened));
  }

 private:
  FileSystem& fs_;
  const std::string directory_;
  const std::vector<std::string> folders_;  // below it
  std::optional<FileIds> here_;
  std::optional<FileIds> blobs_;
};

// The directory that contains the companion files for `source`.
std::string CompanionDirectory(FileSystem& fs, absl::string_view source) {
  if (IsWeightIndexName(source)) return ParentDirectory(source);
  const std::string folder = JoinPath(source, kFolder);
  const absl::StatusOr<FileInfo> info = fs.Stat(folder);
  return info.ok() && info->kind == FileKind::kDirectory &&
                 !fs.Stat(JoinPath(source, kModelConfigName)).ok()
             ? folder
             : std::string(source);
}

absl::Status Refuse(absl::string_view path, absl::string_view why) {
  return OptionError(absl::StatusCode::kFailedPrecondition, path, " ", why,
                     ", so it cannot be copied; ",
                     OptionName{"copy_config", "false"},
                     " leaves config and tokenizer files out");
}

absl::Status Open(CompanionFiles& companions, Belongs& belongs) {
  SourceFiles& files = *companions.files;
  files.OpenAhead(AllFiles(files.names().size()));
  for (uint32_t i = 0; i < files.names().size(); ++i) {
    DCP_ASSIGN_OR_RETURN(const File file, files.Get(i));
    if (!belongs(*files.OpenedAs(i))) {
      return Refuse(files.FullPath(i),
                    "is a link that leads out of the model's directory");
    }
    if (file.size > kMaxCompanionBytes) {
      return Refuse(files.FullPath(i),
                    absl::StrCat("has ", file.size, " bytes, more than ",
                                 kMaxCompanionBytes));
    }
    companions.sizes.push_back(file.size);
  }
  return absl::OkStatus();
}

// The existing folders that modules.json in `directory` names. DataLoss if it
// names something outside.
absl::StatusOr<std::vector<std::string>> ModuleFolders(
    FileSystem& fs, const std::string& directory) {
  const std::string path = JoinPath(directory, kModulesName);
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       ReadFile(fs, path, kMaxModulesBytes,
                                /*follow_symlinks=*/true));
  ValueArena arena;
  const absl::StatusOr<Value> modules = ParseJsonValue(text, arena);
  if (!modules.ok()) return Annotate(modules.status(), path);
  std::vector<std::string> folders;
  if (!modules->is(Value::Kind::kList)) return folders;
  for (const Value& module : modules->items()) {
    const Value folder = FindKey(module, "path").value_or(Value());
    if (!folder.is(Value::Kind::kStr) || folder.text().empty()) continue;
    if (!CheckRelativePath(folder.text()).ok()) {
      return absl::DataLossError(absl::StrCat(path, " names the folder '",
                                              folder.text(),
                                              "', which is not below it"));
    }
    std::string name(folder.text());
    const absl::StatusOr<FileInfo> info = fs.Stat(JoinPath(directory, name));
    const bool is_there =
        info.ok() && info->kind == FileKind::kDirectory &&
        std::find(folders.begin(), folders.end(), name) == folders.end();
    if (is_there) folders.push_back(std::move(name));
  }
  return folders;
}

bool IsWeightName(absl::string_view name) {
  return std::any_of(std::begin(kWeightSuffixes), std::end(kWeightSuffixes),
                     [name](absl::string_view suffix) {
                       return absl::EndsWith(name, suffix);
                     });
}

// Sorts the entries of `folder`, which is below the directory, or empty, into
// names to copy, code, and others.
void SortEntries(absl::string_view folder,
                 const std::vector<DirectoryEntry>& entries,
                 std::vector<std::string>& names, CompanionFiles& companions) {
  for (const DirectoryEntry& entry : entries) {
    std::string name =
        folder.empty() ? entry.name : JoinPath(folder, entry.name);
    const bool is_file = entry.kind != FileKind::kDirectory;
    if (absl::StartsWith(entry.name, ".")) continue;
    if (is_file && (IsCompanionName(entry.name) ||
                    (!folder.empty() && IsWeightName(entry.name)))) {
      names.push_back(std::move(name));
    } else if (absl::EndsWith(entry.name, ".py")) {
      companions.code.push_back(std::move(name));
    } else {
      companions.others.push_back(is_file ? std::move(name)
                                          : absl::StrCat(name, "/"));
    }
  }
}

// Opens a directory's `entries` that belong to a model.
absl::StatusOr<CompanionFiles> OpenAmong(
    FileSystem& fs, const std::string& directory,
    const std::vector<DirectoryEntry>& entries) {
  CompanionFiles companions;
  std::vector<std::string> names;
  SortEntries("", entries, names, companions);
  std::vector<std::string> folders;
  if (std::find(names.begin(), names.end(), kModulesName) != names.end()) {
    DCP_ASSIGN_OR_RETURN(folders, ModuleFolders(fs, directory));
  }
  for (const std::string& folder : folders) {
    DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> below,
                         fs.List(JoinPath(directory, folder)));
    SortEntries(folder, below, names, companions);
    std::erase(companions.others, absl::StrCat(folder, "/"));
  }
  if (names.empty()) return companions;
  companions.files = std::make_unique<SourceFiles>(
      fs, directory, std::move(names), DirectMode::kOff,
      /*follow_symlinks=*/true);
  Belongs belongs(fs, directory, folders);
  DCP_RETURN_IF_ERROR(Open(companions, belongs));
  return companions;
}

// The edits to file `i`, in text order.
absl::StatusOr<std::vector<TextEdit>> FindEdits(
    FileSystem& fs, const CompanionFiles& companions, uint32_t i,
    const ConfigEdits& wanted) {
  std::vector<TextEdit> edits;
  const uint64_t size = companions.sizes[i];
  if ((!wanted.tensor_type.has_value() && !wanted.drops_quantization &&
       wanted.quantization.empty()) ||
      companions.files->names()[i] != kModelConfigName ||
      size > kMaxConfigBytes) {
    return edits;
  }
  DCP_ASSIGN_OR_RETURN(const File file, companions.files->Get(i));
  FileReader reader(fs, file, 0, size);
  const absl::StatusOr<ByteSpan> json = reader.Read(0, size);
  if (!json.ok()) {
    return Annotate(json.status(), companions.files->FullPath(i));
  }
  if (wanted.tensor_type.has_value()) {
    for (const TextRange& range : FindTensorTypes(AsText(*json))) {
      edits.push_back(
          {.range = range, .by = std::string(TorchName(*wanted.tensor_type))});
    }
  }
  if (!wanted.quantization.empty()) {
    std::optional<TextEdit> edit =
        SetQuantization(AsText(*json), wanted.quantization);
    if (edit.has_value()) edits.push_back(*std::move(edit));
  } else if (wanted.drops_quantization) {
    const std::optional<TextRange> range = FindQuantization(AsText(*json));
    if (range.has_value()) edits.push_back({*range, ""});
  }
  std::sort(edits.begin(), edits.end(),
            [](const TextEdit& a, const TextEdit& b) {
              return a.range.offset < b.range.offset;
            });
  return edits;
}

// Adds file `i` with `edits`.
void AddFile(const CompanionFiles& companions, uint32_t i,
             std::vector<TextEdit> edits, Output& output) {
  const uint64_t size = companions.sizes[i];
  TensorEntry& bytes = output.own_tensors.emplace_back();
  bytes.dtype = DType::kUInt8;
  bytes.shape.push_back(static_cast<int64_t>(size));
  bytes.boxes.push_back(WholeBox(bytes.shape));
  ChunkLocation& location = bytes.locations.emplace_back();
  location.item = {.file = i, .offset = 0, .length = size};
  location.located = true;
  FileLayout layout(companions.files->names()[i]);
  uint64_t begin = 0;
  for (size_t part = 0; part <= edits.size(); ++part) {
    const uint64_t end = part < edits.size() ? edits[part].range.offset : size;
    layout.Append(part == 0 ? 0 : edits[part - 1].by.size(), end - begin,
                  static_cast<uint32_t>(output.payloads.size()));
    Payload payload =
        WholePayload(bytes, companions.files.get(), DType::kUInt8);
    payload.box.offsets[0] = static_cast<int64_t>(begin);
    payload.box.sizes[0] = static_cast<int64_t>(end - begin);
    payload.entry = UINT32_MAX - 1;  // after all tensors
    output.payloads.push_back(std::move(payload));
    if (part < edits.size()) begin = end + edits[part].range.length;
  }
  output.files.push_back(
      {.layout = std::move(layout),
       .literal = [edits = std::move(edits)](size_t part,
                                             absl::Span<const uint32_t>) {
         return part == 0 ? std::string() : edits[part - 1].by;
       }});
}

}  // namespace

bool IsCompanionName(absl::string_view name) {
  return std::binary_search(std::begin(kCompanionNames),
                            std::end(kCompanionNames), name);
}

bool CompanionFiles::has_folders() const {
  return files != nullptr &&
         std::any_of(files->names().begin(), files->names().end(),
                     [](const std::string& name) {
                       return absl::StrContains(name, '/');
                     });
}

absl::StatusOr<CompanionFiles> FindCompanionFiles(FileSystem& fs,
                                                  absl::string_view source) {
  DCP_ASSIGN_OR_RETURN(const std::string path, ResolveHubFolder(fs, source));
  const std::string directory = CompanionDirectory(fs, path);
  const absl::StatusOr<std::vector<DirectoryEntry>> entries =
      fs.List(directory);
  if (!entries.ok()) return CompanionFiles();  // the source is a single file
  return OpenAmong(fs, directory, *entries);
}

absl::StatusOr<CompanionFiles> CompanionFilesIn(FileSystem& fs,
                                                absl::string_view directory) {
  DCP_ASSIGN_OR_RETURN(const std::string path, ResolveHubFolder(fs, directory));
  const std::string folder = CompanionDirectory(fs, path);
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                       fs.List(folder));
  DCP_ASSIGN_OR_RETURN(CompanionFiles companions,
                       OpenAmong(fs, folder, entries));
  if (companions.files != nullptr) return companions;
  return absl::NotFoundError(absl::StrCat(
      folder, " has no config, tokenizer or generation files to copy"));
}

absl::StatusOr<std::vector<std::string>> AddCompanionFiles(
    FileSystem& fs, const CompanionFiles& companions, const ConfigEdits& wanted,
    Output& output) {
  std::vector<std::string> left_out;
  for (uint32_t i = 0; i < companions.sizes.size(); ++i) {
    DCP_ASSIGN_OR_RETURN(std::vector<TextEdit> edits,
                         FindEdits(fs, companions, i, wanted));
    // Only that key's removal has an empty replacement.
    for (const TextEdit& edit : edits) {
      if (edit.by.empty()) left_out.emplace_back("quantization_config");
    }
    AddFile(companions, i, std::move(edits), output);
  }
  return left_out;
}

}  // namespace dcp
