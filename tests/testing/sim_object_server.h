// SPDX-License-Identifier: Apache-2.0
// SimObjectServer: an object store in memory, for tests in which the network,
// the server or the client misbehave. Clients are ObjectStores. Data calls end
// on a client thread, in an order that the seed decides. A call may fail before
// or after it took effect (a lost answer), and a client may die between any two
// calls, or during one. The same seed and the same calls, one after the other,
// give the same events. Thread-safe; outlives all clients.
#ifndef TESTS_TESTING_SIM_OBJECT_SERVER_H_
#define TESTS_TESTING_SIM_OBJECT_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "dcp/io/object/object_file_system.h"
#include "dcp/io/object/object_store.h"

namespace dcp::testing {

class SimObjectServer {
 public:
  struct Options {
    uint64_t seed = 1;
    // How often a data call's answer is kept back while others pass it.
    uint32_t percent_late = 30;
    bool has_conditions = true;
    // refuses conditional calls, as some servers do
    bool refuses_conditions = false;
    size_t page_size = 3;  // objects per page of a list
    int64_t first_ns =
        0;  // the time of the first change; the next is 1 s later
  };

  explicit SimObjectServer(const Options& options);
  SimObjectServer() : SimObjectServer(Options()) {}
  ~SimObjectServer();

  // A new client, for the bucket "bucket"; those that died stay dead.
  std::unique_ptr<ObjectStore> NewClient();
  // Opens stores on this server for an ObjectFileSystem.
  OpenObjectStore Opener();

  // Calls so far. Mutations are calls that change the server's contents.
  uint64_t num_calls() const;
  uint64_t num_mutations() const;
  uint64_t num_objects() const;
  uint64_t num_uploads() const;
  // The most bytes that unfinished data calls held at one time.
  uint64_t most_bytes_in_flight() const;

  // After `num_before` more calls one fails with `error`; with `happens`, after
  // it took effect.
  void FailCall(uint64_t num_before, absl::Status error, bool happens = false);
  // After `num_before` more mutations all clients die during the next one,
  // which may or may not have happened. From then on their calls fail with
  // Unavailable.
  void KillClientsAfter(uint64_t num_before);
  bool clients_died() const;
  // Forgets earlier FailCall and KillClientsAfter requests. Clients made so far
  // are dead; new ones live.
  void Heal();

  // An object's bytes; nullopt if there is none.
  std::optional<std::string> BytesOf(absl::string_view key) const;
  std::vector<std::string> Keys() const;
  void PutBytes(absl::string_view key, absl::string_view bytes);

 private:
  friend class SimObjectClient;

  struct Object {
    std::string bytes;
    std::string etag;
    int64_t modified_ns = 0;
    std::string label = {};
  };
  struct Upload {
    std::string key;
    std::string label = {};
    int64_t begun_ns = 0;
    std::map<uint32_t, Object> parts;
  };
  // How a call proceeds: it returns `error`, and takes effect if `happens`.
  struct Fate {
    absl::Status error;
    bool happens = true;
  };

  Fate Begin(uint64_t client, bool mutates)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Object NewObject(absl::string_view bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckCondition(absl::string_view key,
                              const PutCondition& condition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Find(absl::string_view key, absl::string_view etag,
                    Object** found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FindUpload(absl::string_view key, absl::string_view id,
                          Upload** found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When the object or upload with this number was made.
  int64_t CreationTime(uint64_t number) const;
  bool IsLate();
  void CountInFlight(int64_t num_bytes);

  const Options options_;
  mutable absl::Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Object, std::less<>> objects_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Upload, std::less<>> uploads_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Fate> failures_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_mutations_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_made_ ABSL_GUARDED_BY(mutex_) = 0;  // objects and uploads
  uint64_t num_clients_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_dead_ ABSL_GUARDED_BY(mutex_) = 0;  // clients before this one
  std::optional<uint64_t> kill_at_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t most_bytes_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_SIM_OBJECT_SERVER_H_
