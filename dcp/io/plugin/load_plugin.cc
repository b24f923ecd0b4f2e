// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/plugin/load_plugin.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

constexpr char kFolderVariable[] = "TESSERA_PLUGINS";

absl::StatusOr<std::vector<std::filesystem::path>> Folders() {
  const char* const folder = getenv(kFolderVariable);
  if (folder != nullptr && *folder != '\0') {
    if (*folder == '/') return std::vector<std::filesystem::path>{folder};
    return absl::InvalidArgumentError(absl::StrCat(
        kFolderVariable, "=", folder,
        " is relative to a folder that may change: name the whole path"));
  }
  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("/proc/self/exe: ", error.message(), "; set ",
                     kFolderVariable, " to the folder of the plugins"));
  }
  const std::filesystem::path own = program.parent_path();
  return std::vector<std::filesystem::path>{
      own.parent_path() / "lib" / "tessera", own};
}

absl::Status PluginNotFound(absl::string_view library,
                            const std::vector<std::filesystem::path>& folders) {
  return absl::UnimplementedError(absl::StrCat(
      "needs the plugin ", library, ", which is not in ",
      absl::StrJoin(folders, " nor in ",
                    [](std::string* out, const std::filesystem::path& folder) {
                      absl::StrAppend(out, folder.string());
                    }),
      "; build it with `bazel build -c opt //plugins/arrow`, and copy both "
      "files that this makes there, or name their folder in ",
      kFolderVariable));
}

}  // namespace

absl::StatusOr<const tessera_plugin*> LoadPlugin(absl::string_view library) {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::filesystem::path> folders,
                       Folders());
  std::string path;
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path candidate = folder / std::string(library);
    std::error_code error;
    if (!std::filesystem::exists(candidate, error)) continue;
    path = candidate.string();
    break;
  }
  if (path.empty()) return PluginNotFound(library, folders);
  // Local, so that the plugin's symbols and the program's never meet.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the plugin does not load: ", dlerror()));
  }
  const auto get = reinterpret_cast<tessera_get_plugin_function>(
      dlsym(handle, TESSERA_PLUGIN_SYMBOL));
  if (get == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is not a plugin: it has no ", TESSERA_PLUGIN_SYMBOL));
  }
  const tessera_plugin* const plugin = get();
  if (plugin->abi_version != TESSERA_PLUGIN_ABI_VERSION) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " was made for version ", plugin->abi_version,
        " of the interface of plugins, this program has version ",
        TESSERA_PLUGIN_ABI_VERSION, "; build both from the same sources"));
  }
  return plugin;
}

}  // namespace dcp
