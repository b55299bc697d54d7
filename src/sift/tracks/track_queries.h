// Queries over sift pools (src/pool/query/query_service.h answers them): the rows of tracks at the members that keep
// them, ordered by identifier and step. Queries over other pools are passed on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pool/query/query.h"
#include "pool/query/query_members.h"
#include "sift/sift_service.h"
#include "sift/tracks/track_reader.h"
#include "wire/messages/message_kinds.h"

namespace offpath::sift {

// Bounds of steps and identifiers outside of which a filter cannot hold. They come from its parts that are joined by
// "and" and compare `step` or the identifiers with whole numbers. Other parts are ignored, so rows within the bounds
// may still not match.
[[nodiscard]] TrackQuery bounds_of(const pool::Query& query, const RowForm& rows);

class TrackQueries final : public pool::QueryMembers {
 public:
  // Both outlive this.
  TrackQueries(pool::Pools& pools, SiftService& sifts) : pools_(pools), sifts_(sifts) {}

  [[nodiscard]] const std::string& self() const noexcept override { return pools_.self(); }
  [[nodiscard]] Result<std::vector<pool::QuerySource>> choose(const std::string& pool, std::string_view row_glob,
                                                              std::string_view column_glob, uid_t user) override;
  [[nodiscard]] Result<std::optional<Spread>> spread(const std::string& pool) override;
  [[nodiscard]] Result<std::vector<pool::QuerySource>> choose_part(const Part& part,
                                                                   service::Effects& effects) override;
  // Members with tracks are asked even if they seem dead.
  [[nodiscard]] std::vector<std::string> lost(const std::string& pool) const override {
    return SiftService::is_own(pool) ? std::vector<std::string>{} : pools_.lost(pool);
  }
  [[nodiscard]] Result<pool::WaitCharge> charge(uid_t user, std::uint64_t bytes) override {
    return pools_.charge(user, bytes);
  }
  void fetch_part(std::string member, uid_t user, wire::EntryKind kind, TimeNs deadline, std::vector<std::byte> body,
                  Compose compose, Fetched fetched, TimeNs now, service::Effects& effects) override {
    pools_.fetch_part(std::move(member), user, kind, deadline, std::move(body), std::move(compose), std::move(fetched),
                      now, effects);
  }
  void cancel_part(const std::string& member, std::uint64_t number, TimeNs now, service::Effects& effects) override {
    pools_.cancel_part(member, number, now, effects);
  }
  void answer(const pool::FrameTable::Get& get, const FramePtr& frame, TimeNs now, service::Effects& effects) override {
    pools_.answer(get, frame, now, effects);
  }

 private:
  // Empty: the pool had no pieces.
  [[nodiscard]] Result<std::vector<pool::QuerySource>> sources(const std::string& text, std::string_view row_glob,
                                                               std::string_view column_glob, uid_t user,
                                                               service::Effects& effects);

  pool::Pools& pools_;
  SiftService& sifts_;
};

}  // namespace offpath::sift
