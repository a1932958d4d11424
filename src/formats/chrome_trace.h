#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/timeline.h"

namespace fourfold {

/// "traces/rank-00000.json" of a run's folder.
std::string trace_path(const std::string& run_dir, int rank);

/// Writes spans of one rank as a trace that chrome://tracing and ui.perfetto.dev show (Google's
/// Trace Event Format: complete events, microseconds from `zero`): the rank is the process, each
/// track a thread. Atomic. Throws Error.
void write_chrome_trace(const std::string& path, int rank, double zero,
                        const std::vector<TimelineSpan>& spans);

/// Reads what write_chrome_trace wrote; times are seconds from its zero.
Result<std::vector<TimelineSpan>> read_chrome_trace(const std::string& path);

}  // namespace fourfold
