// SPDX-License-Identifier: Apache-2.0
// Opens Google's, Azure's and HDFS's file systems with the settings of this
// machine.
//
// Tested by tests/plugins/arrow/gs_store_test.cc.
#include "plugins/arrow/arrow_bucket.h"

#include <arrow/filesystem/azurefs.h>
#include <arrow/filesystem/gcsfs.h>
#include <arrow/filesystem/hdfs.h>
#include <arrow/util/io_util.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "plugins/arrow/arrow_error.h"

namespace tessera {
namespace {

std::string Setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// How long Google's client tries one request again.
arrow::Result<double> RetrySeconds() {
  constexpr char kName[] = "TESSERA_GS_RETRY_SECONDS";
  constexpr int kUsual = 60;
  constexpr int kMost = 3600;
  const std::string text = Setting(kName);
  if (text.empty()) return kUsual;
  const int seconds = std::atoi(text.c_str());
  if (seconds >= 1 && seconds <= kMost) return seconds;
  return Fail(Code::kInvalidArgument,
              std::string(kName) + "=" + text +
                  " is not a number of seconds from 1 to " +
                  std::to_string(kMost));
}

// Some may list the bucket but not read it, so this lists a folder that is not
// there. Arrow's own error about that folder has no errno, but the server's
// error about the bucket has.
arrow::Status CheckBucket(const ArrowBucket& bucket) {
  arrow::fs::FileSelector selector;
  selector.base_dir = bucket.root + "/.tessera-is-the-bucket-there";
  const arrow::Status status = bucket.files->GetFileInfo(selector).status();
  const bool is_answer =
      status.ok() ||
      status.message().rfind("No such file or directory", 0) == 0;
  if (is_answer) return arrow::Status::OK();
  if (FindCode(status) != Code::kNotFound) return status;
  return Fail(Code::kNotFound,
              "there is no such bucket, or the account may not know of it; "
              "check the name of the bucket");
}

arrow::Result<ArrowBucket> OpenGoogle(const std::string& bucket) {
  arrow::fs::GcsOptions options = arrow::fs::GcsOptions::Defaults();
  const std::string emulator = Setting("STORAGE_EMULATOR_HOST");
  if (!emulator.empty()) {
    options = arrow::fs::GcsOptions::Anonymous();
    const size_t mark = emulator.find("://");
    if (mark != std::string::npos) options.scheme = emulator.substr(0, mark);
    options.endpoint_override =
        mark == std::string::npos ? emulator : emulator.substr(mark + 3);
  }
  ARROW_ASSIGN_OR_RAISE(options.retry_limit_seconds, RetrySeconds());
  ArrowBucket opened;
  ARROW_ASSIGN_OR_RAISE(opened.files, arrow::fs::GcsFileSystem::Make(options));
  opened.root = bucket;
  opened.appears_when_closed = true;
  opened.implicit_folders = true;
  opened.has_labels = true;
  ARROW_RETURN_NOT_OK(CheckBucket(opened));
  return opened;
}

arrow::Result<ArrowBucket> OpenAzure(const std::string& scheme,
                                     const std::string& bucket) {
  ArrowBucket opened;
  arrow::fs::AzureOptions options;
  ARROW_ASSIGN_OR_RAISE(
      options, arrow::fs::AzureOptions::FromUri(scheme + "://" + bucket + "/",
                                                &opened.root));
  while (!opened.root.empty() && opened.root.back() == '/') {
    opened.root.pop_back();
  }
  if (options.account_name.empty()) {
    options.account_name = Setting("AZURE_STORAGE_ACCOUNT");
  }
  if (options.account_name.empty()) {
    return Fail(Code::kInvalidArgument,
                "the name of the account is missing: write "
                "abfss://container@account.dfs.core.windows.net/key, or set "
                "AZURE_STORAGE_ACCOUNT");
  }
  if (opened.root.empty()) {
    return Fail(Code::kInvalidArgument,
                "the name of the container is missing: write "
                "abfss://container@account.dfs.core.windows.net/key");
  }
  const std::string key = Setting("AZURE_STORAGE_KEY");
  const std::string token = Setting("AZURE_STORAGE_SAS_TOKEN");
  if (!key.empty()) {
    ARROW_RETURN_NOT_OK(options.ConfigureAccountKeyCredential(key));
  } else if (!token.empty()) {
    ARROW_RETURN_NOT_OK(options.ConfigureSASCredential(
        token.front() == '?' ? token : "?" + token));
  }
  // Otherwise a stream copies all data that is not sent yet.
  options.background_writes = false;
  ARROW_ASSIGN_OR_RAISE(opened.files,
                        arrow::fs::AzureFileSystem::Make(options));
  ARROW_RETURN_NOT_OK(CheckBucket(opened));
  return opened;
}

// If Arrow finds no libhdfs in the usual place, it loads one from the working
// directory, which may be anybody's.
arrow::Status CheckWorkingDirectory() {
  std::error_code error;
  if (!std::filesystem::exists("libhdfs.so", error)) return arrow::Status::OK();
  return Fail(Code::kFailedPrecondition,
              "there is a libhdfs.so in the working directory, which must not "
              "be loaded: work in another directory");
}

arrow::Result<ArrowBucket> OpenHadoop(const std::string& bucket) {
  ARROW_RETURN_NOT_OK(CheckWorkingDirectory());
  arrow::fs::HdfsOptions options;
  ARROW_ASSIGN_OR_RAISE(
      options, arrow::fs::HdfsOptions::FromUri("hdfs://" + bucket + "/"));
  ArrowBucket opened;
  ARROW_ASSIGN_OR_RAISE(opened.files,
                        arrow::fs::HadoopFileSystem::Make(options));
  opened.needs_folders = true;
  return opened;
}

}  // namespace

arrow::Result<ArrowBucket> OpenArrowBucket(const std::string& scheme,
                                           const std::string& bucket) {
  arrow::Result<ArrowBucket> opened =
      scheme == "gs"     ? OpenGoogle(bucket)
      : scheme == "hdfs" ? OpenHadoop(bucket)
      : scheme == "abfs" || scheme == "abfss"
          ? OpenAzure(scheme, bucket)
          : arrow::Result<ArrowBucket>(
                Fail(Code::kUnimplemented,
                     "this plugin has gs://, abfs://, abfss:// and hdfs://"));
  if (opened.ok()) opened->url = scheme + "://" + bucket;
  return opened;
}

}  // namespace tessera
