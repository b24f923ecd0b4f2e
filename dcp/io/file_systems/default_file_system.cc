// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/file_systems/default_file_system.h"

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/io/file_systems/routed_file_system.h"
#include "dcp/io/object/object_store.h"
#include "dcp/io/object/object_url.h"
#include "dcp/io/plugin/load_plugin.h"
#include "dcp/io/plugin/plugin_store.h"
#include "dcp/io/s3/s3_settings.h"
#include "dcp/io/s3/s3_store.h"

namespace dcp {
namespace {

absl::StatusOr<std::unique_ptr<ObjectStore>> Open(const ObjectUrl& url) {
  if (url.scheme != "s3") {
    const absl::StatusOr<const tessera_plugin*> plugin =
        LoadPlugin(kArrowPlugin);
    if (plugin.ok()) return OpenPluginStore(**plugin, url);
    return Annotate(plugin.status(), url.scheme, "://", url.bucket);
  }
  DCP_ASSIGN_OR_RETURN(const S3Settings settings, ReadS3Settings());
  return OpenS3Store(url.bucket, settings);
}

}  // namespace

std::unique_ptr<FileSystem> NewDefaultFileSystem() {
  return NewRoutedFileSystem(NewPosixFileSystem(), Open);
}

absl::Status CheckServed(absl::string_view path) {
  const size_t scheme_end = path.find("://");
  if (scheme_end == absl::string_view::npos) return absl::OkStatus();
  if (!IsObjectUrl(path)) {
    return absl::UnimplementedError(absl::StrCat(
        path, ": no store has the scheme ", path.substr(0, scheme_end)));
  }
  if (path.substr(0, scheme_end) == "s3") return absl::OkStatus();
  return Annotate(LoadPlugin(kArrowPlugin).status(), path);
}

}  // namespace dcp
