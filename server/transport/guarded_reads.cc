#include "server/transport/guarded_reads.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/log.h"
#include "dcp/base/steady_time.h"
#include "server/process/log_limiter.h"
#include "server/process/log_text.h"

extern "C" {
ssize_t __real_recvmsg(int fd, msghdr* message, int flags);
ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags);
int __real_SSL_read(SSL* ssl, void* bytes, int size);
int __wrap_SSL_read(SSL* ssl, void* bytes, int size);
}

namespace dcp::server {
namespace {

// One instance per process, like the wrapped functions. Never destroyed,
// because gRPC's threads may read while the process ends.
class Guards {
 public:
  static Guards& Get() {
    static Guards& guards = *new Guards;
    return guards;
  }

  std::unique_ptr<FrameGuard> New() {
    return std::make_unique<FrameGuard>(load_);
  }

  void Add(int fd) {
    Entry entry{.cookie = SocketCookie(fd), .guard = New()};
    absl::MutexLock lock(&mutex_);
    entries_[fd] = std::move(entry);
  }

  // Null if the descriptor is not guarded.
  std::shared_ptr<FrameGuard> Find(int fd) {
    const uint64_t cookie = SocketCookie(fd);
    absl::MutexLock lock(&mutex_);
    const auto found = entries_.find(fd);
    if (found == entries_.end()) return nullptr;
    if (found->second.cookie == cookie) return found->second.guard;
    entries_.erase(found);  // the descriptor now is another socket
    return nullptr;
  }

  void Cut(absl::string_view why) {
    ++num_cut_;
    if (!log_limiter_.Allow()) return;
    DCP_LOG(kWarning) << "event=connection_cut why=" << LogText(why);
  }

  CallLoad& load() { return load_; }
  uint64_t num_cut() const { return num_cut_; }

 private:
  struct Entry {
    uint64_t cookie = 0;
    // Owners: this, and the thread that is reading.
    std::shared_ptr<FrameGuard> guard;
  };

  CallLoad load_;
  LogLimiter log_limiter_{"connection_cut"};
  std::atomic<uint64_t> num_cut_ = 0;
  absl::Mutex mutex_;
  absl::flat_hash_map<int, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

// Passes the bytes that recvmsg has put into `message`.
bool PassMessage(FrameGuard& guard, const msghdr& message, size_t length) {
  const absl::Duration now = SteadyNow();
  for (size_t i = 0; i < message.msg_iovlen && length > 0; ++i) {
    const iovec& part = message.msg_iov[i];
    const size_t size = std::min(length, part.iov_len);
    if (!guard.Pass({static_cast<const char*>(part.iov_base), size}, now)) {
      return false;
    }
    length -= size;
  }
  return true;
}

void FreeGuard(void*, void* guard, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<FrameGuard*>(guard);
}

// The guard of a TLS connection of the server; the connection owns it.
FrameGuard* GuardOf(SSL* ssl) {
  static const int index =
      SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, &FreeGuard);
  auto* guard = static_cast<FrameGuard*>(SSL_get_ex_data(ssl, index));
  if (guard != nullptr) return guard;
  std::unique_ptr<FrameGuard> made = Guards::Get().New();
  if (SSL_set_ex_data(ssl, index, made.get()) != 1) return nullptr;
  return made.release();
}

}  // namespace

uint64_t SocketCookie(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return 0;
  return cookie;
}

void GuardReads(int fd) { Guards::Get().Add(fd); }

CallLoad& ProcessCallLoad() { return Guards::Get().load(); }

uint64_t NumConnectionsCut() { return Guards::Get().num_cut(); }

}  // namespace dcp::server

// The linker prescribes these names.
ABSL_ATTRIBUTE_NOINLINE ssize_t __wrap_recvmsg(int fd, msghdr* message,
                                               int flags) {
  using dcp::server::Guards;
  const ssize_t length = __real_recvmsg(fd, message, flags);
  if (length <= 0 || (flags & (MSG_PEEK | MSG_ERRQUEUE)) != 0) return length;
  const std::shared_ptr<dcp::server::FrameGuard> guard = Guards::Get().Find(fd);
  if (guard == nullptr) return length;
  // gRPC may read once more from a connection that was cut.
  const bool is_cut = !guard->complaint().empty();
  if (dcp::server::PassMessage(*guard, *message, static_cast<size_t>(length))) {
    return length;
  }
  if (!is_cut) Guards::Get().Cut(guard->complaint());
  errno = ECONNRESET;
  return -1;
}

ABSL_ATTRIBUTE_NOINLINE int __wrap_SSL_read(SSL* ssl, void* bytes, int size) {
  const int length = __real_SSL_read(ssl, bytes, size);
  if (length <= 0 || SSL_is_server(ssl) == 0) return length;
  dcp::server::FrameGuard* const guard = dcp::server::GuardOf(ssl);
  if (guard == nullptr) return length;
  const bool is_cut = !guard->complaint().empty();
  if (guard->Pass(
          {static_cast<const char*>(bytes), static_cast<size_t>(length)},
          dcp::SteadyNow())) {
    return length;
  }
  if (!is_cut) dcp::server::Guards::Get().Cut(guard->complaint());
  // Makes SSL_get_error return SSL_ERROR_SSL.
  ERR_raise(ERR_LIB_USER, ERR_R_PASSED_INVALID_ARGUMENT);
  return -1;
}
