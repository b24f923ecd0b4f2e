// SPDX-License-Identifier: Apache-2.0
// Each glob is a row of states, one more than it has characters. All globs'
// rows lie next to each other in one long row of bits:
//
//   glob     a  b  *  c          x
//   states  0  1  2      3 |    0  1
//                 ^ repeats
//
// A name's next character moves each reached state to the one after it, if the
// character fits; states followed by a star also stay reached. So a step is a
// shift, two ands and an or.
#include "dcp/base/glob_set.h"

#include <fnmatch.h>

#include <algorithm>
#include <bitset>
#include <functional>
#include <map>
#include <utility>

namespace dcp {
namespace {

using ByteSet = std::bitset<256>;

// The length in bytes of the first element of `glob`: a star, or a pattern that
// matches one character. 0 at the end.
size_t ElementBytes(absl::string_view glob) {
  if (glob.empty()) return 0;
  if (glob[0] == '\\') return std::min<size_t>(2, glob.size());
  if (glob[0] != '[') return 1;
  size_t i = 1;
  if (i < glob.size() && (glob[i] == '!' || glob[i] == '^')) ++i;
  const size_t first = i;
  while (i < glob.size() && (glob[i] != ']' || i == first)) {
    if (glob[i] == '\\') {
      ++i;
    } else if (glob[i] == '[' && i + 1 < glob.size() && glob[i + 1] == ':') {
      const size_t end = glob.find(":]", i + 2);
      if (end != absl::string_view::npos) i = end + 1;
    }
    ++i;
  }
  return i < glob.size() ? i + 1 : 1;  // an unclosed bracket is a character
}

// `element` is not a star.
bool MatchesElement(absl::string_view element, char c) {
  if (element == "?") return true;
  if (element[0] == '\\') return element.size() == 2 && element[1] == c;
  if (element.size() == 1) return element[0] == c;
  const char text[2] = {c, '\0'};
  return fnmatch(std::string(element).c_str(), text, 0) == 0;
}

// The bytes that match `element`; for brackets they are computed only once.
const ByteSet& MatchingBytes(
    absl::string_view element,
    std::map<std::string, ByteSet, std::less<>>& known) {
  const auto [it, is_new] = known.try_emplace(std::string(element));
  for (int byte = 0; is_new && byte < 256; ++byte) {
    const auto index = static_cast<size_t>(byte);
    it->second[index] = MatchesElement(element, static_cast<char>(byte));
  }
  return it->second;
}

void SetBit(std::vector<uint64_t>& words, size_t bit) {
  words[bit / 64] |= uint64_t{1} << (bit % 64);
}

}  // namespace

GlobSet::GlobSet(const std::vector<std::string>& globs)
    : num_globs_(globs.size()) {
  std::map<std::string, ByteSet, std::less<>> known;
  std::vector<size_t> firsts;
  std::vector<size_t> repeats;
  std::vector<std::pair<size_t, const ByteSet*>> elements;  // by their state
  size_t state = 0;
  for (const std::string& glob : globs) {
    firsts.push_back(state);
    absl::string_view rest = glob;
    while (const size_t length = ElementBytes(rest)) {
      if (rest[0] == '*') {
        repeats.push_back(state);
      } else {
        elements.emplace_back(++state,
                              &MatchingBytes(rest.substr(0, length), known));
      }
      rest.remove_prefix(length);
    }
    last_state_.push_back(static_cast<uint32_t>(state++));
  }
  const size_t num_words = (state + 63) / 64;
  for (Words* words : {&first_, &last_, &repeat_}) words->resize(num_words);
  for (const size_t first : firsts) SetBit(first_, first);
  for (const size_t repeat : repeats) SetBit(repeat_, repeat);
  for (const uint32_t last : last_state_) SetBit(last_, last);
  // Bytes that match the same elements have the same step.
  std::map<std::vector<bool>, uint8_t> classes;
  for (size_t byte = 0; byte < 256; ++byte) {
    std::vector<bool> matches;
    for (const auto& [element, bytes] : known) matches.push_back(bytes[byte]);
    const auto [it, is_new] =
        classes.try_emplace(matches, static_cast<uint8_t>(steps_.size()));
    step_of_[byte] = it->second;
    if (!is_new) continue;
    Words& step = steps_.emplace_back(num_words);
    for (const auto& [to, bytes] : elements) {
      if ((*bytes)[byte]) SetBit(step, to);
    }
  }
}

GlobSet::Words GlobSet::Run(absl::string_view name) const {
  Words states = first_;
  for (const char c : name) {
    const Words& step = steps_[step_of_[static_cast<uint8_t>(c)]];
    uint64_t carry = 0;
    uint64_t any = 0;
    for (size_t i = 0; i < states.size(); ++i) {
      const uint64_t now = states[i];
      states[i] = (((now << 1) | carry) & step[i]) | (now & repeat_[i]);
      carry = now >> 63;
      any |= states[i];
    }
    if (any == 0) break;  // nothing can match from here on
  }
  return states;
}

bool GlobSet::MatchesAny(absl::string_view name) const {
  const Words states = Run(name);
  for (size_t i = 0; i < states.size(); ++i) {
    if ((states[i] & last_[i]) != 0) return true;
  }
  return false;
}

std::optional<size_t> GlobSet::LastMatch(absl::string_view name) const {
  const Words states = Run(name);
  for (size_t i = num_globs_; i-- > 0;) {
    const uint32_t last = last_state_[i];
    if ((states[last / 64] >> (last % 64) & 1) != 0) return i;
  }
  return std::nullopt;
}

bool GlobSet::Match(absl::string_view name, std::vector<bool>& matched) const {
  const Words states = Run(name);
  bool any = false;
  for (size_t i = 0; i < num_globs_; ++i) {
    const uint32_t last = last_state_[i];
    if ((states[last / 64] >> (last % 64) & 1) == 0) continue;
    matched[i] = true;
    any = true;
  }
  return any;
}

// Like fnmatch(3), but not exponential in the number of stars: once the next
// star is reached, the previous star's match is final, so only the last one is
// tried again.
bool MatchesGlob(absl::string_view glob, absl::string_view name) {
  size_t g = 0;
  size_t n = 0;
  size_t star = absl::string_view::npos;  // the last one, and
  size_t after_star = 0;                  // where the match of the star ends
  while (n < name.size()) {
    const size_t element = ElementBytes(glob.substr(g));
    if (element > 0 && glob[g] == '*') {
      star = g++;
      after_star = n;
    } else if (element > 0 &&
               MatchesElement(glob.substr(g, element), name[n])) {
      g += element;
      ++n;
    } else if (star != absl::string_view::npos) {
      g = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace dcp
