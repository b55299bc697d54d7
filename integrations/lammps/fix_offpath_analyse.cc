// SPDX-License-Identifier: GPL-2.0-only
#include "fix_offpath_analyse.h"

#include <dlfcn.h>
#include <mpi.h>

#include <filesystem>
#include <span>
#include <string_view>

#include "analysis.h"
#include "analyst.h"
#include "call_order.h"
#include "cna.h"
#include "error.h"
#include "rdf.h"
#include "since_reference.h"
#include "update.h"
#include "utils.h"

namespace offpath_lammps {

namespace {

// The library of analysis_plugin.cc is installed beside this one.
std::string plugin_path() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&plugin_path), &here) == 0) return {};
  return (std::filesystem::canonical(here.dli_fname).parent_path() / "offpath_lammps_analysis.so").string();
}

std::unique_ptr<Analysis> make_analysis(std::string_view name, LAMMPS_NS::LAMMPS* lammps, const LAMMPS_NS::Fix& fix) {
  using Kind = SinceReference::Kind;
  if (name == "rdf") return std::make_unique<Rdf>(lammps, fix);
  if (name == "cna") return std::make_unique<Cna>(lammps, fix);
  if (name == "msd") return std::make_unique<SinceReference>(lammps, fix, Kind::msd);
  if (name == "vacf") return std::make_unique<SinceReference>(lammps, fix, Kind::vacf);
  return nullptr;
}

}  // namespace

FixOffpathAnalyse::FixOffpathAnalyse(LAMMPS_NS::LAMMPS* lammps, int argc, char** argv)
    : Fix(lammps, argc, argv), wait_(std::chrono::seconds(60)) {
  parse(argc, argv);
  global_freq = nevery;
  try {
    analyst_ =
        std::make_unique<Analyst>(agent_, plugin_path(), analysis_->output_name(), analysis_->output_bytes(), wait_);
  } catch (const offpath::Error& why) {
    error->one(FLERR, "{}: {}. Start an agent with `offpath agent`, or name one by `agent ADDRESS`", analyse_style,
               why.what());
  }
}

FixOffpathAnalyse::~FixOffpathAnalyse() {
  if (analyst_) analyst_->own_again();
}

void FixOffpathAnalyse::parse(int argc, char** argv) {
  if (argc < 5) LAMMPS_NS::utils::missing_cmd_args(FLERR, analyse_style, error);
  nevery = LAMMPS_NS::utils::inumeric(FLERR, argv[3], false, lmp);
  if (nevery <= 0)
    error->all(FLERR, "{}: N is {}, the number of steps from one hand-over to the next", analyse_style, nevery);
  analysis_ = make_analysis(argv[4], lmp, *this);
  if (!analysis_) error->all(FLERR, "{}: unknown analysis {}; it knows rdf, cna, msd and vacf", analyse_style, argv[4]);
  for (int at = 5 + analysis_->parse(std::span(argv, static_cast<std::size_t>(argc)).subspan(5)); at < argc; at += 2) {
    const std::string_view keyword = argv[at];
    if (at + 1 == argc) LAMMPS_NS::utils::missing_cmd_args(FLERR, std::string(analyse_style) + " " + argv[at], error);
    const char* const value = argv[at + 1];
    if (keyword == "lag") {
      lag_ = LAMMPS_NS::utils::logical(FLERR, value, false, lmp) != 0;
    } else if (keyword == "agent") {
      agent_ = value;
    } else if (keyword == "wait") {
      const double seconds = LAMMPS_NS::utils::numeric(FLERR, value, false, lmp);
      if (!(seconds > 0 && seconds < 1e9))
        error->all(FLERR, "{}: wait is {}, a number of seconds", analyse_style, value);
      wait_ = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
    } else if (!analysis_->keyword(keyword, value)) {
      error->all(FLERR, "{}: unknown keyword {}; {} knows {}lag, agent and wait", analyse_style, argv[at], argv[4],
                 analysis_->keywords());
    }
  }
  analysis_->ready(*this);
}

int FixOffpathAnalyse::setmask() {
  using namespace LAMMPS_NS::FixConst;
  return INITIAL_INTEGRATE | INITIAL_INTEGRATE_RESPA | END_OF_STEP;
}

void FixOffpathAnalyse::init() { analysis_->init(); }

void FixOffpathAnalyse::setup(int) {
  analysis_->setup();
  become_first(*modify, this);
  if (update->ntimestep % nevery == 0) hand_over();
}

void FixOffpathAnalyse::set_arrays(int index) { analysis_->atom_created(index); }

void FixOffpathAnalyse::initial_integrate(int) { analyst_->own_again(); }

void FixOffpathAnalyse::initial_integrate_respa(int, int, int) { analyst_->own_again(); }

void FixOffpathAnalyse::end_of_step() { hand_over(); }

void FixOffpathAnalyse::post_run() { analyst_->own_again(); }

void FixOffpathAnalyse::hand_over() {
  if (last_step_ == update->ntimestep) return;  // it ended a run, and begins the next one
  last_step_ = update->ntimestep;
  take();
  if (analysis_->ended()) return;
  const bool was_lost = !analyst_->lost().empty();
  analyst_->ask(analysis_->request());
  asked_ = true;
  warn_of_loss(was_lost);
}

void FixOffpathAnalyse::take() {
  if (!asked_) return;
  asked_ = false;
  const bool was_lost = !analyst_->lost().empty();
  std::optional<std::vector<std::byte>> answer;
  try {
    answer = analyst_->take();
  } catch (const offpath::Error& why) {
    error->one(FLERR, "{}: {}. {}", analyse_style, why.what(),
               why.code() == OFP_TOO_LARGE ? "Let the agent keep more: offpath agent --memory SIZE --set "
                                             "task.resident_max=SIZE"
                                           : "Let the agent run it: offpath agent --set task.user_plugins=own");
  }
  warn_of_loss(was_lost);
  const int own = answer ? 1 : 0;
  int all = 0;
  MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, world);
  if (all != 0)
    analysis_->take(*answer);
  else
    analysis_->miss();
}

void FixOffpathAnalyse::warn_of_loss(bool was_lost) {
  if (was_lost || analyst_->lost().empty()) return;
  error->warning(FLERR, "{} {}: step {}: {}: {}", analyse_style, id, update->ntimestep, analysis_->without_agent(),
                 analyst_->lost());
}

double FixOffpathAnalyse::value(int row, int column) {
  if (!lag_) take();
  return analysis_->value(row, column);
}

double FixOffpathAnalyse::compute_vector(int index) { return value(index, 0); }

double FixOffpathAnalyse::compute_array(int row, int column) { return value(row, column); }

}  // namespace offpath_lammps
