// SPDX-License-Identifier: Apache-2.0
// Access: identifies callers and says which paths they may read and write. A
// caller presents a bearer token ("authorization: Bearer ..."); without a
// tokens file everyone is "anonymous" and may use the server's roots. Any
// thread.
//
// The tokens file has one line per client; '#' begins a comment:
//
//   NAME SHA256-OF-TOKEN-IN-HEX [admin] [read=ROOT]... [write=ROOT]...
//
// Roots are the server's roots or directories below them; `write` includes
// reading; a client without any may read all of the server's roots. An admin
// sees and cancels the jobs of all clients, but gets no right to a path from
// that. A name may have several lines, so that a token can be replaced while
// both are in use.
#ifndef SERVER_ACCESS_ACCESS_H_
#define SERVER_ACCESS_ACCESS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/server_context.h"
#include "server/access/pinned_path.h"

namespace dcp::server {

struct Root {
  // Absolute, and may contain symbolic links; or in an object store, such as
  // "s3://bucket/runs", where nothing leads elsewhere.
  std::string path = {};
  bool writable = false;
  std::string real_path = {};  // without symbolic links; filled in by Access
};

// Whether `path` is `root` or lies below it, judged by the names alone. Both
// are absolute, or in an object store, and have no slash at the end.
bool IsBelow(absl::string_view path, absl::string_view root);

// How the caller intends to use a path.
enum class PathUse : uint8_t {
  kRead,
  kWrite,
  // As above, but for the directory entry itself: a link at the end of the path
  // is not followed. Used to stat, rename or remove it.
  kReadEntry,
  kWriteEntry,
};

class Client {
 public:
  Client(std::string name, std::vector<Root> roots, bool is_admin = false)
      : name_(std::move(name)), roots_(std::move(roots)), is_admin_(is_admin) {}

  const std::string& name() const { return name_; }
  const std::vector<Root>& roots() const { return roots_; }
  // Whether it may see and cancel the jobs of all clients.
  bool is_admin() const { return is_admin_; }
  bool HasSameRights(const Client& other) const;

  // Whether the tokens file no longer gives this client the rights that it has
  // here. A revoked client stays revoked. Any thread.
  bool is_revoked() const { return revoked_->load(); }
  void Revoke() { revoked_->store(true); }
  // A client with the same rights that cannot be revoked.
  Client Unrevoked() const { return {name_, roots_, is_admin_}; }

  // The innermost root that `path` lies below, judged by the names alone; null
  // if there is none. Does not look at the disk.
  const Root* FindRoot(absl::string_view path) const;

  // Which files the client may read, as text: clients with equal texts may read
  // the same files.
  std::string Reach() const;

  // Where the path leads now. InvalidArgument if it is neither absolute nor in
  // an object store, or contains ".", ".." or a query. PermissionDenied if the
  // client is revoked, if the path does not lie below a root of this client, or
  // if a symbolic link on the way leads out of the roots or to nothing; for
  // writing, also if the path is a root itself or read-only. A path that does
  // not exist yet may be written if the nearest existing directory may. The
  // error does not reveal whether a path outside the roots exists. Open the
  // result with PinnedPath, because links may change at any time. Looks at the
  // disk, and so may block.
  absl::StatusOr<Location> Locate(absl::string_view path, PathUse use) const;
  // Where Locate finds the path for kRead and kWrite, with the root as the
  // operator named it.
  absl::StatusOr<std::string> CheckRead(absl::string_view path) const;
  absl::StatusOr<std::string> CheckWrite(absl::string_view path) const;

 private:
  std::string name_;
  std::vector<Root> roots_;
  bool is_admin_;
  // Owners: this, and copies of it, which are revoked together.
  std::shared_ptr<std::atomic<bool>> revoked_ =
      std::make_shared<std::atomic<bool>>(false);
};

class Access {
 public:
  // `tokens_file` may be empty. InvalidArgument names a root that is not a
  // directory, or the line and the mistake in the tokens file.
  static absl::StatusOr<Access> Load(const std::vector<Root>& roots,
                                     const std::string& tokens_file);

  Access(Access&&) = default;
  Access& operator=(Access&&) = default;

  // Reads the tokens file again. Clients that it no longer names, or names with
  // other rights, are revoked; the others stay the same objects. On an error
  // (the same as Load's) nothing changes.
  absl::Status Reload();

  // Unauthenticated if there is no token, or an unknown one; tokens are
  // compared in constant time. The client lives as long as this object.
  absl::StatusOr<const Client*> Authenticate(
      const grpc::ServerContextBase& context) const;
  absl::StatusOr<const Client*> AuthenticateToken(
      absl::string_view token) const;

  // Whether clients are identified by tokens.
  bool has_tokens() const { return anonymous_ == nullptr; }

  // The client with this name, to continue work that it left: null if the name
  // no longer exists. If it has several lines, the last one, which is likely
  // the newest. The client without a token is "anonymous".
  const Client* FindClient(absl::string_view name) const;

  // The server itself, which may use all roots. It cleans up after clients that
  // have lost their rights.
  const Client& server() const { return *server_; }

 private:
  struct Entry {
    std::string token_sha256;  // 32 bytes
    // Owners: the generations that name it.
    std::shared_ptr<Client> client;
  };
  // All entries that were ever read, because calls refer to their clients. The
  // last generation is the valid one.
  struct Generations {
    absl::Mutex mutex;
    std::deque<std::vector<Entry>> all ABSL_GUARDED_BY(mutex);
  };

  Access() : generations_(std::make_unique<Generations>()) {}

  static absl::StatusOr<std::vector<Entry>> LoadEntries(
      const std::vector<Root>& roots, const std::string& tokens_file);
  // The valid generation. It never changes, and lives as long as this object.
  const std::vector<Entry>& entries() const;

  std::vector<Root> roots_;  // the server's
  std::string tokens_file_;  // may be empty
  std::unique_ptr<Generations> generations_;
  std::unique_ptr<Client> anonymous_;  // null if there is a tokens file
  std::unique_ptr<Client> server_;
};

}  // namespace dcp::server

#endif  // SERVER_ACCESS_ACCESS_H_
