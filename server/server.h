// SPDX-License-Identifier: Apache-2.0
// Server: the daemon, independent of the process. Builds the services and their
// gRPC server from options, starts, drains and stops it. One thread creates,
// starts and drains it; any thread may call Stop.
#ifndef SERVER_SERVER_H_
#define SERVER_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/io/file_system.h"
#include "server/options/server_options.h"

namespace dcp::server {

class Server {
 public:
  // Checks the roots, tokens, certificates and the state directory, locks the
  // state directory, and reads the journal of jobs. Serves nothing yet.
  // InvalidArgument names the mistake. Checkpoints are read and written through
  // `fs`.
  static absl::StatusOr<std::unique_ptr<Server>> Create(
      const ServerOptions& options,
      std::unique_ptr<FileSystem> fs = NewPosixFileSystem());
  // Makes the checks of Create without locking or creating anything, so that it
  // also works while a server runs with these options.
  static absl::Status Check(const ServerOptions& options);
  // Calls Stop and Drain.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves from now on, and continues unfinished jobs. Returns the address with
  // the chosen port. Unavailable if the address is in use. Call once.
  absl::StatusOr<std::string> Start();

  // From now on health is NOT_SERVING, new calls are Unavailable, and no job
  // begins. Returns when the calls and jobs in progress have ended. After
  // options.drain, or Stop, calls are cancelled and jobs are stopped; these
  // continue at the next start. Also waits for a thread that a file system
  // blocks in the kernel: see ForcedEnd.
  void Drain();
  // Reads tokens and certificates again and logs the result; the previous value
  // stays if the new one is invalid. One thread at a time.
  void Reload();
  // Logs a warning if the certificate expires within a month.
  void WarnAboutExpiry() const;
  // Returns if the server works: no lock is held forever, and gRPC answers. May
  // be called from Start until the destructor.
  void CheckAlive();

  // Makes Drain stop jobs and cancel calls at once. Waits until the jobs have
  // stopped, about as long as one block takes.
  void Stop();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace dcp::server

#endif  // SERVER_SERVER_H_
