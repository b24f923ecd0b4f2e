// SPDX-License-Identifier: Apache-2.0
// FairQueue: waiting items, in one row per client. Clients take turns, so that
// a client with a thousand items does not delay the first item of another.
// Thread-compatible.
#ifndef SERVER_PROCESS_FAIR_QUEUE_H_
#define SERVER_PROCESS_FAIR_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"

namespace dcp::server {

template <typename T>
class FairQueue {
 public:
  void Push(const std::string& client, T item) {
    rows_[client].push_back(std::move(item));
    ++size_;
  }

  // The next item, from the client after the one that was served last.
  std::optional<T> Pop() {
    return PopIf([](const std::string&) { return true; });
  }

  // The same, passing over the clients for which `may` returns false.
  std::optional<T> PopIf(absl::FunctionRef<bool(const std::string&)> may) {
    auto row = rows_.upper_bound(last_client_);
    for (size_t i = 0; i < rows_.size(); ++i, ++row) {
      if (row == rows_.end()) row = rows_.begin();
      if (!may(row->first)) continue;
      last_client_ = row->first;
      std::optional<T> item = std::move(row->second.front());
      row->second.pop_front();
      if (row->second.empty()) rows_.erase(row);
      --size_;
      return item;
    }
    return std::nullopt;
  }

  // Returns whether the item was in the queue.
  bool Remove(const std::string& client, const T& item) {
    const auto row = rows_.find(client);
    if (row == rows_.end()) return false;
    const auto found = std::find(row->second.begin(), row->second.end(), item);
    if (found == row->second.end()) return false;
    row->second.erase(found);
    if (row->second.empty()) rows_.erase(row);
    --size_;
    return true;
  }

  size_t size() const { return size_; }
  // How many items from that client wait.
  size_t size(const std::string& client) const {
    const auto row = rows_.find(client);
    return row == rows_.end() ? 0 : row->second.size();
  }

 private:
  std::map<std::string, std::deque<T>> rows_;  // none is empty
  std::string last_client_;
  size_t size_ = 0;
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_FAIR_QUEUE_H_
