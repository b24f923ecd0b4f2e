// Server: the daemon without its process. Builds the services and their gRPC
// server from options, starts, drains and stops it. Made, started and drained
// by one thread; Stop is for any.
#ifndef SERVER_SERVER_H_
#define SERVER_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/io/file_system.h"
#include "server/server_options.h"

namespace dcp::server {

class Server {
 public:
  // Checks roots, tokens, certificates and the state directory, which it takes,
  // and reads the journal of jobs. Serves nothing yet. InvalidArgument names
  // what is wrong. Checkpoints are read and written through `fs`.
  static absl::StatusOr<std::unique_ptr<Server>> Create(
      const ServerOptions& options,
      std::unique_ptr<FileSystem> fs = NewPosixFileSystem());
  // What Create checks, without taking or making anything: also beside a server
  // that runs with these options.
  static absl::Status Check(const ServerOptions& options);
  // As Drain after Stop.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves from now on, and goes on with unfinished jobs. Returns the address,
  // with the port that was chosen. Unavailable where it cannot be had. Once.
  absl::StatusOr<std::string> Start();

  // Health says NOT_SERVING, new calls are Unavailable, no job begins. Returns
  // when the calls and jobs that go on have ended; after options.drain or Stop
  // calls are cancelled and jobs stopped, which go on at the next start. A
  // thread that a file system holds in the kernel is waited for: see ForcedEnd.
  void Drain();
  // Reads tokens and certificates again, and logs what came of it; what is
  // wrong stays as it was. One thread at a time.
  void Reload();
  // Logs a warning where the certificate expires within a month.
  void WarnOfExpiry() const;

  // Makes Drain stop jobs and cancel calls at once. Waits for jobs to stop, a
  // block's time.
  void Stop();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace dcp::server

#endif  // SERVER_SERVER_H_
