#include "base/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <string>

#include "base/env.h"

namespace fourfold {
namespace {

long number_after(std::string_view spec, char mark, long otherwise) {
  const auto at = spec.find(mark);
  if (at == std::string_view::npos) return otherwise;
  long value = otherwise;
  std::from_chars(spec.data() + at + 1, spec.data() + spec.size(), value);
  return value;
}

}  // namespace

void fault_point(std::string_view name, int rank, long passage) {
  const auto wanted = env("FOURFOLD_FAULT");
  if (!wanted) return;
  const std::string_view spec = *wanted;
  const auto at = spec.find('@');
  if (at == std::string_view::npos) return;
  const auto rest = spec.substr(at + 1);
  if (rest.substr(0, rest.find_first_of(":/")) != name) return;
  if (number_after(rest, ':', passage) != passage || number_after(rest, '/', rank) != rank) return;
  const auto action = spec.substr(0, at);
  if (action == "kill") ::kill(::getpid(), SIGKILL);
  if (action == "stop") ::kill(::getpid(), SIGSTOP);
  if (action == "hang") {
    while (true) ::pause();
  }
}

}  // namespace fourfold
