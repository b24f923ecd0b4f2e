// SPDX-License-Identifier: Apache-2.0

#include "server/process/log_line.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/utf8.h"
#include "server/process/log_text.h"

namespace dcp::server {
namespace {

constexpr absl::string_view kLevels[] = {"info", "warning", "error"};
constexpr absl::string_view kLetters[] = {"I", "W", "E"};

void AppendString(absl::string_view text, std::string& json) {
  json.push_back('"');
  for (const char c : ToUtf8(text)) {
    if (c == '"' || c == '\\') {
      json.push_back('\\');
      json.push_back(c);
    } else if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppendFormat(&json, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      json.push_back(c);
    }
  }
  json.push_back('"');
}

// The end of the value at the beginning of `text`; the value may be quoted.
size_t ValueEnd(absl::string_view text) {
  if (!absl::StartsWith(text, "\"")) {
    return std::min(text.find(' '), text.size());
  }
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return text.size();
}

std::string Unquoted(absl::string_view value) {
  std::string plain;
  if (value.size() >= 2 && value.front() == '"' && value.back() == '"' &&
      absl::CUnescape(value.substr(1, value.size() - 2), &plain)) {
    return plain;
  }
  return std::string(value);
}

// Appends ,"key":"value" for each field; numbers have no quotes.
void AppendFields(absl::string_view event, std::string& json) {
  while (true) {
    event = absl::StripLeadingAsciiWhitespace(event);
    if (event.empty()) return;
    const size_t equals = event.find('=');
    const size_t space = event.find(' ');
    json.push_back(',');
    if (equals == event.npos || space < equals) {
      AppendString("message", json);
      json.push_back(':');
      AppendString(event, json);
      return;
    }
    AppendString(event.substr(0, equals), json);
    json.push_back(':');
    event.remove_prefix(equals + 1);
    const size_t end = ValueEnd(event);
    const absl::string_view value = event.substr(0, end);
    if (IsJsonNumber(value)) {
      absl::StrAppend(&json, value);
    } else {
      AppendString(Unquoted(value), json);
    }
    event.remove_prefix(end);
  }
}

}  // namespace

std::string LogLine(LogSeverity severity, absl::string_view event,
                    absl::Time time, const LogFormat& format) {
  const auto index = static_cast<size_t>(severity);
  const std::string at =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
  if (!format.json) {
    return absl::StrCat(at, " ", kLetters[index], " ", event, "\n");
  }
  std::string json =
      absl::StrCat("{\"time\":\"", at, "\",\"level\":\"", kLevels[index], "\"");
  AppendFields(event, json);
  absl::StrAppend(&json, "}\n");
  return json;
}

}  // namespace dcp::server
