// Agreement of members on the definitions of pools (agreement.h is the state of one): sends its questions, serves other
// members' definitions, and replaces a definition that lost by the one that won.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "sift/pools/pool_making.h"

namespace offpath::sift {

class PoolAgreements {
 public:
  // The references outlive this.
  PoolAgreements(const ServiceContext& context, KnownPools& known, UnderWay& under_way, PoolMaking& making) noexcept
      : context_(context), known_(known), under_way_(under_way), making_(making) {}

  // All members are known to have agreed.
  void agree(SiftPool& pool, TimeNs now, service::Effects& effects) {
    after(pool, pool.agreement.agree(now), {}, now, effects);
  }
  void work(SiftPool& pool, TimeNs now, service::Effects& effects);
  // `before`: the members that lived until now. `anew`: those that restarted, without their pools unless these were on
  // their disks.
  void on_members(SiftPool& pool, std::span<const std::string> before, std::span<const std::string> anew, TimeNs now,
                  service::Effects& effects);
  void on_answer(const UnderWay::Work& work, const Result<std::uint64_t>& answer, TimeNs now,
                 service::Effects& effects);

  // Another member's definition. The answer is whether all agreed on it, as far as this agent knows.
  [[nodiscard]] Result<std::uint64_t> serve_define(const wire::PeerDefine& asked, TimeNs now,
                                                   service::Effects& effects);
  // The pool of another member's request: a member sends others than definitions only after all have agreed.
  [[nodiscard]] Result<SiftPool*> define_agreed(std::string_view said, uid_t user, TimeNs now,
                                                service::Effects& effects);
  // Serves requests that wait, if the pool is ready.
  static void serve_deferred(SiftPool& pool, TimeNs now, service::Effects& effects);

 private:
  void after(SiftPool& pool, Agreement::Outcome outcome, const Agreement::Asks& asks, TimeNs now,
             service::Effects& effects);
  void ask(SiftPool& pool, const Agreement::Ask& asked, TimeNs now, service::Effects& effects);
  [[nodiscard]] Result<std::uint64_t> serve_definition(std::string_view text, uid_t user, TimeNs now,
                                                       service::Effects& effects);
  [[nodiscard]] Result<SiftPool*> replace(SiftPool& pool, std::string_view text, uid_t user, TimeNs now,
                                          service::Effects& effects);

  const ServiceContext& context_;
  KnownPools& known_;
  UnderWay& under_way_;
  PoolMaking& making_;
};

}  // namespace offpath::sift
