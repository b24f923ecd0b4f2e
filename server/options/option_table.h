// SPDX-License-Identifier: Apache-2.0
// The server's options as a table, for parsing and help. Constant data; any
// thread.
#ifndef SERVER_OPTIONS_OPTION_TABLE_H_
#define SERVER_OPTIONS_OPTION_TABLE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/options/server_options.h"

namespace dcp::server {

struct OptionRow {
  absl::string_view key;
  absl::string_view value;  // placeholder for the value in help; empty: a flag
  absl::string_view help;   // lines of at most 53 columns
  // Stores `value`, or returns the mistake in it.
  absl::Status (*apply)(absl::string_view value, ServerOptions& options);
  // The field as text, for the default in help; null: help does not show it.
  std::string (*show)(const ServerOptions& options) = nullptr;
  bool repeatable = false;
};

// Those that the command line and the file accept.
absl::Span<const OptionRow> AllOptions();

// Null if there is no such option.
const OptionRow* FindOption(absl::string_view key);

}  // namespace dcp::server

#endif  // SERVER_OPTIONS_OPTION_TABLE_H_
