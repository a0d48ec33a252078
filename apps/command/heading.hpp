#pragma once
// Where the help shows an option.

namespace calm::apps {

// The headings of the help, in its order.
enum class heading { common, data, model, optimizer, checkpoints, evaluation, sampling, devices, advanced };

// Options that are seldom used are left to --help-all.
enum class seldom { no, yes };

}  // namespace calm::apps
