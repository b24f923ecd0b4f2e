// Access: who calls, and which paths they may read and write. A caller shows a
// bearer token ("authorization: Bearer ..."); without a file of tokens everyone
// is "anonymous" and may use the server's roots. Any thread.
//
// The file of tokens has a line for each client, '#' begins a comment:
//
//   NAME SHA256-OF-TOKEN-IN-HEX [admin] [read=ROOT]... [write=ROOT]...
//
// Roots are the server's or lie below them; `write` includes reading; a client
// without any may read all of the server's roots. An admin sees and ends the
// jobs of all clients; it gives no right to a path. A name may have several
// lines, so that a token can be replaced while both are in use.
#ifndef SERVER_ACCESS_H_
#define SERVER_ACCESS_H_

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
#include "server/pinned_path.h"

namespace dcp::server {

struct Root {
  std::string path = {};  // absolute; may lead over symbolic links
  bool writable = false;
  std::string real_path = {};  // where it leads; Access fills it in
};

// Whether `path` is `root` or lies below it, by their names alone. Both are
// absolute and without a slash at the end.
bool IsBelow(absl::string_view path, absl::string_view root);

// What is to be done with a path.
enum class PathUse : uint8_t {
  kRead,
  kWrite,
  // The entry of a directory: a link at the end of the path is not followed,
  // as when it is looked at, renamed or removed.
  kReadEntry,
  kWriteEntry,
};

class Client {
 public:
  Client(std::string name, std::vector<Root> roots, bool is_admin = false)
      : name_(std::move(name)), roots_(std::move(roots)), is_admin_(is_admin) {}

  const std::string& name() const { return name_; }
  const std::vector<Root>& roots() const { return roots_; }
  // Whether it may see and end the jobs of all clients.
  bool is_admin() const { return is_admin_; }

  // The root that `path` lies below by its name, of several the innermost; null
  // where there is none. Does not look at the disk.
  const Root* RootOf(absl::string_view path) const;

  // Which files may be read, as text: clients for whom it is the same may read
  // the same.
  std::string Reach() const;

  // Where the path leads now. InvalidArgument for one that is not absolute or
  // has "." or ".." in it; PermissionDenied for one that does not lie below a
  // root of this client, also when a symbolic link on the way leads out or to
  // nothing, and, to be written, for a root itself and what may only be read.
  // What does not exist yet may be written when its nearest existing directory
  // may. It does not tell whether a path outside of the roots exists. What is
  // opened must be opened by PinnedPath: links may change at any time. Looks at
  // the disk, and so may block.
  absl::StatusOr<Location> Locate(absl::string_view path, PathUse use) const;
  // The path of the location.
  absl::StatusOr<std::string> CheckRead(absl::string_view path) const;
  absl::StatusOr<std::string> CheckWrite(absl::string_view path) const;

 private:
  std::string name_;
  std::vector<Root> roots_;
  bool is_admin_;
};

class Access {
 public:
  // `tokens_file` may be empty. InvalidArgument names a root that is no
  // directory, or line and mistake of the file.
  static absl::StatusOr<Access> Load(const std::vector<Root>& roots,
                                     const std::string& tokens_file);

  Access(Access&&) = default;
  Access& operator=(Access&&) = default;

  // Reads the file of tokens again. Whom it does not name any more is refused
  // from then on; calls that go on keep the rights that they began with. On an
  // error, which is as Load's, everything stays as it was.
  absl::Status Reload();

  // Unauthenticated without a token, or with one that nobody has; compared in
  // constant time. The client lives as long as this.
  absl::StatusOr<const Client*> Authenticate(
      const grpc::ServerContextBase& context) const;
  absl::StatusOr<const Client*> AuthenticateToken(
      absl::string_view token) const;

  // Whether clients are told apart by tokens.
  bool has_tokens() const { return anonymous_ == nullptr; }

  // For what a client left to be done: null when nobody is called so any more.
  // Of several lines the last, which is likely the newest. Anonymous is
  // "anonymous".
  const Client* FindClient(absl::string_view name) const;

  // Who may use all of the server's roots: the server itself, which clears up
  // after clients that may not any more.
  const Client& server() const { return *server_; }

 private:
  struct Entry {
    std::string token_sha256;  // 32 bytes
    std::unique_ptr<Client> client;
  };
  // All that were ever read: calls refer to their clients. The last counts.
  struct Generations {
    absl::Mutex mutex;
    std::deque<std::vector<Entry>> all ABSL_GUARDED_BY(mutex);
  };

  Access() : generations_(std::make_unique<Generations>()) {}

  static absl::StatusOr<std::vector<Entry>> LoadEntries(
      const std::vector<Root>& roots, const std::string& tokens_file);
  // Never changes, and lives as long as this.
  const std::vector<Entry>& entries() const;

  std::vector<Root> roots_;  // of the server
  std::string tokens_file_;  // may be empty
  std::unique_ptr<Generations> generations_;
  std::unique_ptr<Client> anonymous_;  // without a file of tokens
  std::unique_ptr<Client> server_;
};

}  // namespace dcp::server

#endif  // SERVER_ACCESS_H_
