// SPDX-License-Identifier: Apache-2.0

#include "plugins/arrow/arrow_error.h"

#include <arrow/util/io_util.h>

#include <cerrno>
#include <exception>
#include <memory>
#include <utility>

namespace tessera {
namespace {

constexpr size_t kMaxText = 400;
constexpr char kGoogle[] = "google::cloud::Status(";
constexpr char kLastMessage[] = "with a last message of ";
constexpr char kAzure[] = "Azure Error: [";

class CodeDetail final : public arrow::StatusDetail {
 public:
  explicit CodeDetail(Code code) : code_(code) {}
  const char* type_id() const override { return "tessera::CodeDetail"; }
  std::string ToString() const override { return ""; }
  Code code() const { return code_; }

 private:
  const Code code_;
};

struct KnownWord {
  const char* word;
  Code code;
};

// Status texts from Google's client begin with these words.
constexpr KnownWord kGoogleCodes[] = {
    {"CANCELLED", Code::kCancelled},
    {"INVALID_ARGUMENT", Code::kInvalidArgument},
    {"NOT_FOUND", Code::kNotFound},
    {"ALREADY_EXISTS", Code::kAlreadyExists},
    {"PERMISSION_DENIED", Code::kPermissionDenied},
    {"UNAUTHENTICATED", Code::kPermissionDenied},
    {"RESOURCE_EXHAUSTED", Code::kResourceExhausted},
    {"FAILED_PRECONDITION", Code::kFailedPrecondition},
    {"OUT_OF_RANGE", Code::kDataLoss},
    {"UNIMPLEMENTED", Code::kUnimplemented},
    {"DATA_LOSS", Code::kDataLoss},
};

// Azure's error codes contain these words.
constexpr KnownWord kAzureCodes[] = {
    {"NotFound", Code::kNotFound},
    {"AlreadyExists", Code::kAlreadyExists},
    {"Authentication", Code::kPermissionDenied},
    {"Authorization", Code::kPermissionDenied},
    {"Permission", Code::kPermissionDenied},
    {"NotPermitted", Code::kPermissionDenied},
    {"ConditionNotMet", Code::kFailedPrecondition},
    {"InvalidRange", Code::kDataLoss},
};

Code GoogleCode(const std::string& text) {
  for (const KnownWord& known : kGoogleCodes) {
    if (text.rfind(known.word, 0) == 0) return known.code;
  }
  return Code::kUnavailable;
}

Code AzureCode(const std::string& text) {
  const std::string code = text.substr(0, text.find(']'));
  for (const KnownWord& known : kAzureCodes) {
    if (code.find(known.word) != std::string::npos) return known.code;
  }
  return Code::kUnavailable;
}

Code ErrnoCode(int error) {
  switch (error) {
    case ENOENT:
      return Code::kNotFound;
    case EEXIST:
      return Code::kAlreadyExists;
    case EACCES:
    case EPERM:
      return Code::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
      return Code::kResourceExhausted;
    default:
      return Code::kUnavailable;
  }
}

// The error text, fit for a log line. URL queries may hold secrets.
std::string Clean(const std::string& text) {
  std::string clean;
  bool in_query = false;
  for (const char c : text) {
    if (clean.size() >= kMaxText) break;
    const bool ends = c == '\'' || c == '"' || (c >= 0 && c <= ' ');
    in_query = !ends && (in_query || c == '?');
    if (!in_query) clean.push_back(c >= 0 && c < ' ' ? ' ' : c);
  }
  return clean;
}

// The error text without the parts that only library authors understand.
std::string PlainErrorText(const arrow::Status& status) {
  std::string text = status.message();
  const size_t google = text.find(kGoogle);
  if (google != std::string::npos) {
    text = text.substr(google + sizeof(kGoogle) - 1);
    text = text.substr(0, text.find(" error_info={"));
    const size_t last = text.find(kLastMessage);
    if (last != std::string::npos) {
      text = text.substr(0, text.find(':')) + ": " +
             text.substr(last + sizeof(kLastMessage) - 1);
    }
  }
  return Clean(text);
}

// Whether a library that Arrow itself loads, libhdfs or libjvm, is missing.
bool LacksLibrary(const std::string& said) {
  return said.find("Unable to load lib") != std::string::npos;
}

std::string Advice(const std::string& url, Code code, const std::string& said) {
  const std::string scheme = url.substr(0, url.find(':'));
  if (LacksLibrary(said)) {
    return "install Hadoop's client and Java on this machine, and set "
           "HADOOP_HOME or ARROW_LIBHDFS_DIR, JAVA_HOME, and CLASSPATH to "
           "the output of `hadoop classpath --glob`";
  }
  switch (code) {
    case Code::kPermissionDenied:
      if (scheme == "gs") {
        return "check GOOGLE_APPLICATION_CREDENTIALS, and that the account may "
               "list, read and write objects of the bucket";
      }
      if (scheme == "hdfs") return "check HADOOP_USER_NAME or the ticket";
      return "check AZURE_STORAGE_KEY or the other credentials, or that the "
             "identity is a Storage Blob Data Contributor of the container";
    case Code::kUnavailable:
      if (scheme == "gs") {
        return "check the network, the credentials "
               "(GOOGLE_APPLICATION_CREDENTIALS), and STORAGE_EMULATOR_HOST if "
               "it is set";
      }
      if (scheme == "hdfs") return "check the name node and the network";
      return "check the name of the account, the network and the credentials";
    default:
      return "";
  }
}

}  // namespace

arrow::Status Fail(Code code, const std::string& text) {
  return arrow::Status(arrow::StatusCode::UnknownError, text,
                       std::make_shared<CodeDetail>(code));
}

Code FindCode(const arrow::Status& status) {
  if (status.ok()) return Code::kOk;
  const auto* const own =
      dynamic_cast<const CodeDetail*>(status.detail().get());
  if (own != nullptr) return own->code();
  const std::string& text = status.message();
  const size_t google = text.find(kGoogle);
  if (google != std::string::npos) {
    return GoogleCode(text.substr(google + sizeof(kGoogle) - 1));
  }
  const size_t azure = text.find(kAzure);
  if (azure != std::string::npos) {
    return AzureCode(text.substr(azure + sizeof(kAzure) - 1));
  }
  // Azure's client found no credentials, so that there is no answer with a
  // code.
  if (text.find("AuthenticationException") != std::string::npos) {
    return Code::kPermissionDenied;
  }
  if (LacksLibrary(text)) return Code::kFailedPrecondition;
  if (const int error = arrow::internal::ErrnoFromStatus(status); error != 0) {
    return ErrnoCode(error);
  }
  switch (status.code()) {
    case arrow::StatusCode::Cancelled:
      return Code::kCancelled;
    case arrow::StatusCode::Invalid:
      return Code::kInvalidArgument;
    case arrow::StatusCode::AlreadyExists:
      return Code::kAlreadyExists;
    case arrow::StatusCode::OutOfMemory:
    case arrow::StatusCode::CapacityError:
      return Code::kResourceExhausted;
    case arrow::StatusCode::NotImplemented:
      return Code::kUnimplemented;
    default:
      return Code::kUnavailable;
  }
}

std::string ErrorText(const std::string& url, const std::string& operation,
                      const arrow::Status& status) {
  const std::string said = PlainErrorText(status);
  std::string text = url + ": " + operation + ": " + said;
  const std::string advice = Advice(url, FindCode(status), said);
  if (!advice.empty()) text += "; " + advice;
  return text;
}

// Arrow has no exceptions of its own, but the clients under it do, such as
// Azure's when it finds no credentials.
arrow::Status Guarded(const std::function<arrow::Status()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return arrow::Status::IOError(error.what());
  } catch (...) {
    return arrow::Status::IOError("an exception that is not a standard one");
  }
}

}  // namespace tessera
