// SPDX-License-Identifier: Apache-2.0

#include "server/access/access.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "dcp/base/error_place.h"
#include "dcp/base/status.h"
#include "dcp/io/object/object_url.h"
#include "proto/error_detail.h"
#include "server/process/problems.h"
#include "server/process/text_file.h"

namespace dcp::server {
namespace {

// As in HTTP, "Bearer" is matched without regard to case.
constexpr absl::string_view kScheme = "bearer ";

absl::Status NotAllowed(absl::string_view path, absl::string_view why) {
  return WithReason(
      WithPlace(absl::PermissionDeniedError(absl::StrCat("path ", path, why)),
                {.path = std::string(path)}),
      ErrorReason::PATH_NOT_ALLOWED);
}

absl::Status OutsideError(absl::string_view path) {
  return NotAllowed(path, " is not below a root that this client may use");
}

std::string Sha256(absl::string_view text) {
  std::string hash(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const uint8_t*>(text.data()), text.size(),
         reinterpret_cast<uint8_t*>(hash.data()));
  return hash;
}

// The name in an object store without a slash at the end.
absl::StatusOr<std::string> NormalizeUrl(absl::string_view path) {
  // It would choose another server, for which this one would sign.
  if (absl::StrContains(path, '?')) {
    return absl::InvalidArgumentError(absl::StrCat(
        "path '", path,
        "' has a query; the settings of object stores are those of the "
        "server"));
  }
  DCP_ASSIGN_OR_RETURN(const ObjectUrl url, ParseObjectUrl(path));
  return absl::StrCat(url.scheme, "://", url.bucket, url.key.empty() ? "" : "/",
                      url.key);
}

// The path without repeated slashes and without a slash at the end.
absl::StatusOr<std::string> Normalize(absl::string_view path) {
  if (IsObjectUrl(path)) return NormalizeUrl(path);
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("path '", path, "' ", why));
  };
  if (path.size() >= PATH_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("path of ", path.size(), " bytes exceeds ", PATH_MAX - 1));
  }
  if (path.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError("path contains a NUL");
  }
  if (!absl::StartsWith(path, "/")) {
    return refuse("is not absolute, and not in an object store");
  }
  std::string normal;
  for (absl::string_view part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (part == "." || part == "..") return refuse("contains . or ..");
    if (part.size() > NAME_MAX) return refuse("has a name that is too long");
    absl::StrAppend(&normal, "/", part);
  }
  return normal.empty() ? "/" : normal;
}

// The place to which the normalized `path` leads: the real path of the longest
// part that exists, followed by the rest unchanged. Empty if that cannot be
// determined, for example because of a dangling link.
std::string Resolve(const std::string& path) {
  if (IsObjectUrl(path)) return path;
  std::string rest;
  std::string existing = path;
  while (true) {
    char real[PATH_MAX];
    if (realpath(existing.c_str(), real) != nullptr) {
      return absl::StrCat(std::string(real) == "/" ? "" : real, rest);
    }
    if (errno != ENOENT && errno != ENOTDIR) return "";
    struct stat info;
    if (lstat(existing.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) return "";
    const size_t slash = existing.rfind('/');
    rest = existing.substr(slash) + rest;
    existing.resize(slash);
    if (existing.empty()) return rest;
  }
}

// The real path of the parent directory, followed by the last component
// unchanged.
std::string ResolveEntry(const std::string& path) {
  if (IsObjectUrl(path)) return path;
  const size_t slash = path.rfind('/');
  if (slash == 0) return path;
  const std::string directory = Resolve(path.substr(0, slash));
  return directory.empty() ? "" : directory + path.substr(slash);
}

absl::StatusOr<Root> CheckRoot(const Root& root) {
  DCP_ASSIGN_OR_RETURN(const std::string path, Normalize(root.path));
  // A store is asked when a client uses it, as it may not answer now.
  if (IsObjectUrl(path)) {
    return Root{.path = path, .writable = root.writable, .real_path = path};
  }
  char real[PATH_MAX];
  struct stat info;
  if (realpath(path.c_str(), real) == nullptr || stat(real, &info) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", path, ": ", strerror(errno)));
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", path, " is not a directory"));
  }
  const absl::StatusOr<PinnedPath> pinned =
      PinnedPath::OpenDirectory({.root = real, .path = real});
  // A root is served only if paths below it can be pinned.
  if (!pinned.ok()) return Annotate(pinned.status(), "root ", path);
  if (stat(pinned->name().c_str(), &info) != 0) {
    return absl::UnimplementedError(
        absl::StrCat("root ", path, ": ", pinned->name(), ": ", strerror(errno),
                     ": the server requires /proc"));
  }
  return Root{.path = path, .writable = root.writable, .real_path = real};
}

// Parses "read=/data" in a client's line; the path lies below one of the
// server's own roots.
absl::StatusOr<Root> ParseRoot(absl::string_view word,
                               const std::vector<Root>& server_roots) {
  const bool writable = absl::ConsumePrefix(&word, "write=");
  if (!writable && !absl::ConsumePrefix(&word, "read=")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", word, "' is not admin, read=ROOT or write=ROOT"));
  }
  DCP_ASSIGN_OR_RETURN(
      Root root, CheckRoot({.path = std::string(word), .writable = writable}));
  bool readable = false;
  for (const Root& outer : server_roots) {
    if (!IsBelow(root.real_path, outer.real_path)) continue;
    if (outer.writable || !writable) return root;
    readable = true;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "root ", word,
      readable ? " lies below a root of the server that is read-only"
               : " does not lie below a root of the server"));
}

struct TokenLine {
  std::string token_sha256;
  std::string name;
  std::vector<Root> roots;
  bool is_admin = false;
};

absl::StatusOr<TokenLine> ParseTokenLine(absl::string_view line,
                                         const std::vector<Root>& roots) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.size() < 2) {
    return absl::InvalidArgumentError(
        "requires NAME SHA256 [admin] [read=ROOT]... [write=ROOT]...");
  }
  if (words[1].size() != 2 * SHA256_DIGEST_LENGTH ||
      !std::all_of(words[1].begin(), words[1].end(), absl::ascii_isxdigit)) {
    // The text is not shown: it may be the token itself.
    return absl::InvalidArgumentError(
        absl::StrCat("the hash of ", words[0],
                     " is not 64 hexadecimal digits; make it "
                     "with: printf %s \"$TOKEN\" | sha256sum"));
  }
  TokenLine parsed{.token_sha256 = absl::HexStringToBytes(words[1]),
                   .name = std::string(words[0]),
                   .roots = {}};
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "admin") {
      parsed.is_admin = true;
      continue;
    }
    DCP_ASSIGN_OR_RETURN(Root root, ParseRoot(words[i], roots));
    parsed.roots.push_back(std::move(root));
  }
  if (parsed.roots.empty()) {
    parsed.roots = roots;
    for (Root& root : parsed.roots) root.writable = false;
  }
  return parsed;
}

// The text of the tokens file. Refuses a file that others may change, because
// they could grant access.
absl::StatusOr<std::string> ReadTokensFile(const std::string& path) {
  uint32_t mode = 0;
  absl::StatusOr<std::string> text = ReadTextFile(path, &mode);
  if (!text.ok()) return Annotate(text.status(), "tokens file");
  if ((mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokens file: ", path, ": ",
        (mode & S_IWOTH) != 0 ? "everyone" : "the group of the file",
        " may change it, and so grant access; run chmod go-w on it"));
  }
  return text;
}

}  // namespace

bool IsBelow(absl::string_view path, absl::string_view root) {
  if (root == "/") return true;
  return absl::ConsumePrefix(&path, root) && (path.empty() || path[0] == '/');
}

const Root* Client::FindRoot(absl::string_view path) const {
  const absl::StatusOr<std::string> normal = Normalize(path);
  if (!normal.ok()) return nullptr;
  const Root* found = nullptr;
  size_t length = 0;
  for (const Root& root : roots_) {
    for (const std::string& name : {root.path, root.real_path}) {
      if (!IsBelow(*normal, name) || name.size() <= length) continue;
      found = &root;
      length = name.size();
    }
  }
  return found;
}

bool Client::HasSameRights(const Client& other) const {
  return name_ == other.name_ && is_admin_ == other.is_admin_ &&
         std::equal(roots_.begin(), roots_.end(), other.roots_.begin(),
                    other.roots_.end(), [](const Root& a, const Root& b) {
                      return a.path == b.path && a.writable == b.writable &&
                             a.real_path == b.real_path;
                    });
}

std::string Client::Reach() const {
  std::string reach;
  // A zero byte separates paths, because no path contains one.
  for (const Root& root : roots_) {
    absl::StrAppend(&reach, root.path, absl::string_view("\0", 1),
                    root.real_path, absl::string_view("\0", 1));
  }
  return reach;
}

absl::StatusOr<std::string> Client::CheckRead(absl::string_view path) const {
  DCP_ASSIGN_OR_RETURN(const Location location, Locate(path, PathUse::kRead));
  return location.WithClientPaths(location.path);
}

absl::StatusOr<std::string> Client::CheckWrite(absl::string_view path) const {
  DCP_ASSIGN_OR_RETURN(const Location location, Locate(path, PathUse::kWrite));
  return location.WithClientPaths(location.path);
}

absl::StatusOr<Location> Client::Locate(absl::string_view path,
                                        PathUse use) const {
  if (is_revoked()) {
    return WithReason(
        absl::PermissionDeniedError(absl::StrCat(
            "the rights of ", name_, " on this server have changed")),
        ErrorReason::CLIENT_REMOVED, {{"client", name_}});
  }
  DCP_ASSIGN_OR_RETURN(const std::string normal, Normalize(path));
  // A path with a name outside the roots is not looked at, so that the response
  // time does not reveal whether it exists.
  const bool named =
      std::any_of(roots_.begin(), roots_.end(), [&](const Root& root) {
        return IsBelow(normal, root.path) || IsBelow(normal, root.real_path);
      });
  if (!named) return OutsideError(path);
  // For a root, a link is resolved even if the entry is asked for.
  const bool is_root =
      std::any_of(roots_.begin(), roots_.end(), [&](const Root& root) {
        return normal == root.path || normal == root.real_path;
      });
  const bool entry = use == PathUse::kReadEntry || use == PathUse::kWriteEntry;
  const bool write = use == PathUse::kWrite || use == PathUse::kWriteEntry;
  const std::string real =
      entry && !is_root ? ResolveEntry(normal) : Resolve(normal);
  bool readable = false;
  for (const Root& root : roots_) {
    if (real.empty() || !IsBelow(real, root.real_path)) continue;
    readable = true;
    // The root itself may not be replaced.
    if (write && (!root.writable || real == root.real_path)) continue;
    return Location{
        .root = root.real_path, .path = real, .root_name = root.path};
  }
  if (!readable) return OutsideError(path);
  return NotAllowed(path, " may not be written by this client");
}

absl::StatusOr<Access> Access::Load(const std::vector<Root>& roots,
                                    const std::string& tokens_file) {
  Access access;
  Problems problems;
  std::vector<Root> checked;
  for (const Root& root : roots) {
    absl::StatusOr<Root> one = CheckRoot(root);
    problems.Add(one.status());
    if (one.ok()) checked.push_back(*std::move(one));
  }
  access.server_ = std::make_unique<Client>("server", checked);
  access.roots_ = checked;
  access.tokens_file_ = tokens_file;
  if (tokens_file.empty()) {
    access.anonymous_ = std::make_unique<Client>("anonymous", checked);
  } else {
    problems.Add(access.Reload());
  }
  DCP_RETURN_IF_ERROR(problems.status());
  return access;
}

absl::Status Access::Reload() {
  if (tokens_file_.empty()) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(std::vector<Entry> entries,
                       LoadEntries(roots_, tokens_file_));
  absl::MutexLock lock(&generations_->mutex);
  if (!generations_->all.empty()) {
    for (Entry& old : generations_->all.back()) {
      const auto same =
          std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
            return entry.token_sha256 == old.token_sha256 &&
                   entry.client->HasSameRights(*old.client);
          });
      if (same == entries.end()) {
        old.client->Revoke();
      } else {
        same->client = old.client;
      }
    }
  }
  generations_->all.push_back(std::move(entries));
  return absl::OkStatus();
}

const std::vector<Access::Entry>& Access::entries() const {
  absl::MutexLock lock(&generations_->mutex);
  return generations_->all.back();
}

absl::StatusOr<std::vector<Access::Entry>> Access::LoadEntries(
    const std::vector<Root>& roots, const std::string& tokens_file) {
  std::vector<Entry> entries;
  DCP_ASSIGN_OR_RETURN(const std::string text, ReadTokensFile(tokens_file));
  Problems problems;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    absl::StatusOr<TokenLine> parsed = ParseTokenLine(line, roots);
    if (!parsed.ok()) {
      problems.Add(Annotate(parsed.status(), tokens_file, ":", number));
      continue;
    }
    for (const Entry& entry : entries) {
      if (entry.token_sha256 != parsed->token_sha256) continue;
      problems.Add(absl::InvalidArgumentError(
          absl::StrCat(tokens_file, ":", number, ": ", parsed->name,
                       " has the same token as ", entry.client->name())));
    }
    entries.push_back(
        {std::move(parsed->token_sha256),
         std::make_shared<Client>(parsed->name, std::move(parsed->roots),
                                  parsed->is_admin)});
  }
  DCP_RETURN_IF_ERROR(problems.status());
  if (entries.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens file ", tokens_file, " names no client"));
  }
  return entries;
}

absl::StatusOr<const Client*> Access::Authenticate(
    const grpc::ServerContextBase& context) const {
  if (anonymous_ != nullptr) return anonymous_.get();
  const auto [begin, end] =
      context.client_metadata().equal_range("authorization");
  if (begin == end) {
    return WithReason(
        absl::UnauthenticatedError("this server requires a token: send the "
                                   "metadata authorization: Bearer TOKEN"),
        ErrorReason::TOKEN_MISSING);
  }
  const absl::string_view value(begin->second.data(), begin->second.size());
  if (std::next(begin) != end || !absl::StartsWithIgnoreCase(value, kScheme)) {
    return WithReason(
        absl::UnauthenticatedError(
            "the metadata authorization must be one value, Bearer TOKEN"),
        ErrorReason::TOKEN_INVALID);
  }
  return AuthenticateToken(
      absl::StripAsciiWhitespace(value.substr(kScheme.size())));
}

absl::StatusOr<const Client*> Access::AuthenticateToken(
    absl::string_view token) const {
  if (anonymous_ != nullptr) return anonymous_.get();
  const std::string hash = Sha256(token);
  const Client* found = nullptr;
  // Compares with all entries, so that the time does not reveal a match.
  for (const Entry& entry : entries()) {
    if (CRYPTO_memcmp(hash.data(), entry.token_sha256.data(), hash.size()) ==
        0) {
      found = entry.client.get();
    }
  }
  if (found == nullptr) {
    return WithReason(absl::UnauthenticatedError("no client has this token"),
                      ErrorReason::TOKEN_INVALID);
  }
  return found;
}

const Client* Access::FindClient(absl::string_view name) const {
  if (anonymous_ != nullptr) {
    return name == anonymous_->name() ? anonymous_.get() : nullptr;
  }
  const Client* found = nullptr;
  for (const Entry& entry : entries()) {
    if (entry.client->name() == name) found = entry.client.get();
  }
  return found;
}

}  // namespace dcp::server
