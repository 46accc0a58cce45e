//! What every store promises, tried on each kind there is, and what the one in a file promises beside.
//!
//! A promise is a function over any [`place::Place`]; `promises!` makes a test of it for each kind. The kind in
//! memory is the simple one that the others are compared with, and shows that nothing here is about SQLite.

mod claims;
mod events;
mod failures;
mod fence;
mod files;
mod fixtures;
mod full;
mod kills;
mod leases;
mod lists;
mod memory;
mod place;
mod processes;
mod pruning;
mod sample;
mod sequences;
mod sqlite;
mod terms;

macro_rules! promises {
    ($($module:ident { $($promise:ident,)* })*) => {
        mod in_a_file {
            $(mod $module { $(
                #[test]
                fn $promise() {
                    crate::place::run::<crate::sqlite::InAFile>(crate::$module::$promise);
                }
            )* })*
        }
        mod in_memory {
            $(mod $module { $(
                #[test]
                fn $promise() {
                    crate::place::run::<crate::memory::InMemory>(crate::$module::$promise);
                }
            )* })*
        }
    };
}

promises! {
    terms {
        each_supervisor_gets_a_term_nobody_had_before,
        many_who_enter_at_once_get_terms_of_their_own,
        a_term_that_left_can_not_claim_adopt_or_renew,
        a_term_that_never_entered_gets_nothing,
        what_a_term_held_when_it_left_can_be_adopted_at_once,
        a_term_that_left_may_finish_what_nobody_took,
        leaving_twice_is_leaving_once,
        owners_are_listed_with_all_that_is_known_of_them,
    }
    claims {
        epochs_count_from_one_for_each_task,
        a_first_attempt_comes_after_those_that_are_known_elsewhere,
        an_open_attempt_is_refused_to_everybody,
        a_claim_over_something_that_is_not_the_last_is_refused,
        a_refused_claim_changes_nothing,
        an_attempt_begins_with_what_was_claimed,
        of_32_claimers_one_has_it,
        a_claimer_that_was_slower_is_refused_after_the_other_ended,
    }
    fence {
        a_lease_that_was_adopted_changes_nothing_any_more,
        a_lease_stays_lost_when_the_newer_owner_ended_blocked,
        a_lease_stays_lost_when_the_next_attempt_is_open,
        a_lease_stays_lost_when_the_next_attempt_ended_blocked,
        a_lease_of_an_attempt_that_the_same_term_ended_is_lost,
        a_lease_that_was_never_given_changes_nothing,
        after_an_adoption_nothing_of_the_old_owner_is_recorded,
        without_the_fence_the_same_writes_are_found_out,
    }
    leases {
        renewing_puts_off_all_leases_of_a_term_and_no_others,
        renewing_returns_what_is_still_held_by_task,
        a_lease_whose_time_is_up_still_counts_until_somebody_takes_it,
        adopting_keeps_the_attempt_and_changes_its_owner,
        of_many_who_adopt_at_once_one_has_it,
        an_attempt_that_is_not_as_it_was_seen_is_not_adopted,
        a_long_lease_does_not_overflow,
        a_request_to_cancel_stays,
        a_request_to_cancel_needs_an_open_attempt,
    }
    failures {
        only_what_failed_by_the_agents_fault_counts,
        what_is_forgiven_does_not_count,
        the_open_attempt_is_forgiven_too,
        failures_are_counted_for_each_task,
        a_task_without_attempts_can_be_forgiven,
        failures_are_known_after_their_attempts_are_forgotten,
    }
    events {
        numbers_are_consecutive_over_all_tasks,
        an_event_says_what_happened_to_whom_by_whom_and_when,
        a_page_has_as_many_as_asked_for_and_the_next_one_goes_on,
        who_reads_in_pages_while_others_write_misses_nothing,
        a_write_that_was_refused_leaves_no_gap,
    }
    lists {
        open_attempts_are_listed_the_oldest_first,
        the_last_attempt_of_each_task_is_listed_by_task,
        attempts_at_a_task_are_listed_from_the_first,
        every_phase_comes_back_as_it_was_recorded,
        texts_come_back_as_they_were_given,
        tasks_of_two_protocols_are_two_tasks,
        everybody_sees_the_mode_that_was_set_last,
        the_version_changes_when_somebody_else_writes,
        what_one_recorded_the_other_reads,
    }
    pruning {
        the_last_attempt_of_each_task_and_open_ones_stay,
        events_go_with_their_attempts_and_their_numbers_are_not_given_again,
        what_was_recorded_since_stays,
        epochs_go_on_after_pruning,
        supervisors_that_left_are_forgotten_and_their_terms_are_not_given_again,
        a_supervisor_that_left_something_open_is_not_forgotten,
    }
}
