//! The behaviour of the manager, against API servers in memory (`fake`) and against kube-apiserver
//! and etcd (`real`). Where the two differ, the one in memory is wrong.

mod administrator;
mod adoption;
mod audit;
mod browser;
mod canary;
#[path = "../rendering/clouds.rs"]
mod clouds;
mod collisions;
mod commands;
mod credentials;
mod definitions;
mod doctor;
mod drop_in;
mod edge;
mod federation;
mod fixtures;
mod fleet_page;
mod handover;
mod homes;
mod inventories;
mod joining;
mod kkp;
mod kkp_clusters;
mod life;
mod links;
mod machine_reports;
mod machines;
mod managers;
mod operators;
mod overlays;
mod plan;
mod process;
mod profiles;
mod proxy;
mod refusals;
mod registration;
mod removal;
mod renewal;
mod repair;
mod replicas;
mod rights;
mod rotation;
mod server;
mod serving;
mod sizes;
mod stage;
mod takeover;
mod tenant_add;
mod tenant_remove;
mod terminator;
mod traces;
mod unknown;
mod wait;
mod workers;
mod world;

use std::sync::LazyLock;

use osm::telemetry::logs::{LogBuffer, LogFormat};
use osm::telemetry::{self, TelemetrySettings};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use server::Kind;
use world::World;

/// One runtime for all tests of a binary: clients and servers in memory live on it, and the
/// clusters are shared.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    // A second provider may be linked: the choice is made before the first use.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("the machine has threads left")
});
/// What all managers of this process have logged; failed tests show their part of it.
static LOG: LazyLock<LogBuffer> = LazyLock::new(|| {
    let log = LogBuffer::default();
    let settings = TelemetrySettings {
        log_format: LogFormat::Text,
        log_filter: "info,osm=debug".to_owned(),
        ..TelemetrySettings::default()
    };
    let (dispatch, telemetry) =
        telemetry::prepare(&settings, log.clone()).expect("the settings are right");
    // Without an exporter there is nothing to shut down.
    drop(telemetry);
    tracing::dispatcher::set_global_default(dispatch).expect("nobody else logs here");
    log
});
static FAKE: OnceCell<World> = OnceCell::const_new();
static REAL: OnceCell<World> = OnceCell::const_new();

/// Runs a scenario in the world of this kind, which all scenarios share.
pub fn run<F: Future<Output = ()>>(kind: Kind, scenario: impl FnOnce(&'static World) -> F) {
    LazyLock::force(&LOG);
    let world = match kind {
        Kind::Fake => &FAKE,
        Kind::Real => &REAL,
    };
    RUNTIME.block_on(async {
        let world = world.get_or_init(|| World::start(kind)).await;
        scenario(world).await;
    });
}

/// What was logged about a tenant, and about none.
fn logged(namespace: &str) -> String {
    let log = LOG.text();
    let lines = log.lines().filter(|line| {
        line.contains(namespace) || !(line.contains("tenant=") || line.contains("registration="))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A test for each scenario, in each of the two worlds.
macro_rules! scenarios {
    ($($theme:ident::$name:ident,)+) => {
        mod fake {
            $(
                #[test]
                fn $name() {
                    crate::run(crate::Kind::Fake, crate::$theme::$name);
                }
            )+
        }

        mod real {
            $(
                #[test]
                fn $name() {
                    crate::run(crate::Kind::Real, crate::$theme::$name);
                }
            )+
        }
    };
}

scenarios! {
    serving::tenants_that_register_at_run_time_are_served_each_in_its_own_clusters,
    workers::tenant_templates_are_rendered_in_a_worker_and_shipped_ones_in_process,
    workers::a_stopped_render_changes_nothing,
    rotation::another_profile_content_makes_new_secrets_but_keeps_the_kubelet_kubeconfig,
    rotation::a_comment_beside_a_certificate_authority_writes_nothing,
    repair::a_role_that_machines_cannot_fetch_with_is_corrected,
    repair::whether_machines_can_join_is_checked_as_a_machine_would,
    repair::whether_machines_can_join_needs_rights_and_an_authority,
    repair::a_deleted_namespace_is_back_once_a_person_restores_the_rights_in_it,
    removal::a_removed_machine_deployment_takes_everything_along,
    removal::what_was_made_for_one_that_vanished_unwatched_is_removed,
    removal::release_gives_machine_deployments_back_and_leaves_what_was_made,
    removal::purge_gives_machine_deployments_back_and_removes_what_was_made,
    tenant_add::a_bare_cluster_is_added_served_and_removed,
    tenant_add::what_the_manager_would_refuse_is_refused_before_anything_is_written,
    tenant_add::a_name_a_cluster_or_a_namespace_of_somebody_else_is_refused,
    tenant_add::what_was_there_before_is_used_and_stays_and_a_setting_is_not_forgotten,
    tenant_add::one_that_is_added_again_is_ready_by_its_new_kubeconfig_alone,
    takeover::a_cluster_of_kubeone_is_added_without_a_rotation,
    takeover::a_cluster_with_a_management_cluster_is_added_without_a_rotation,
    tenant_remove::tenants_of_a_manager_that_is_gone_are_removed_with_their_own_kubeconfigs,
    managers::what_no_manager_serves_is_not_called_ready,
    managers::commands_judge_with_the_settings_of_the_manager,
    managers::of_two_fleets_the_first_serves_and_the_other_takes_over,
    operators::a_shell_completes_the_names_of_tenants,
    operators::the_fleet_is_reported_in_a_table_as_json_and_as_it_changes,
    operators::a_machine_deployment_is_explained_with_what_blocks_it,
    operators::a_machine_is_shown_with_the_step_that_it_waits_at,
    operators::what_is_not_there_is_named_by_every_command,
    operators::a_doctor_finds_what_is_missing_and_says_how_to_mend_it,
    doctor::a_doctor_knows_registrations_that_are_gone_or_that_nothing_refers_to,
    doctor::a_doctor_claims_nothing_about_what_it_may_not_read,
    doctor::a_doctor_prescribes_what_helps,
    removal::keep_leaves_all_as_it_is_and_says_so_and_a_new_registration_goes_on,
    collisions::of_two_with_the_same_derived_names_only_the_older_is_served,
    collisions::once_the_older_is_gone_the_younger_is_served,
    collisions::when_the_younger_goes_the_older_keeps_what_it_has,
    refusals::each_is_given_by_the_reconcile_and_by_the_commands,
    registration::a_kubeconfig_that_would_do_more_than_connect_is_refused_and_harms_nobody,
    registration::a_second_registration_in_a_namespace_waits_until_the_first_goes,
    registration::a_renewed_credential_is_taken_over_without_a_list,
    federation::clusters_are_served_with_no_stored_credential,
    federation::a_cluster_is_added_that_trusts_the_management_cluster,
    renewal::a_token_is_renewed_before_it_expires,
    renewal::a_cluster_is_added_with_a_token_that_is_renewed,
    registration::a_kubeconfig_that_leads_to_another_cluster_is_refused_until_confirmed,
    registration::a_worker_cluster_of_another_tenant_is_refused_until_it_is_released,
    registration::a_way_around_to_the_management_cluster_is_refused_once_it_answers,
    registration::a_kubeconfig_without_rights_is_tried_again_and_logged_once,
    registration::a_server_in_a_denied_range_is_refused_without_a_request,
    registration::an_unreachable_worker_cluster_says_so_costs_nobody_and_comes_back,
    links::a_worker_cluster_has_one_connection_over_a_whole_life,
    links::a_server_that_falls_silent_is_unreachable_and_harms_nobody,
    links::a_frozen_server_without_http2_is_noticed_though_nobody_asks_it,
    profiles::a_profile_of_a_namespace_that_the_operator_allows_is_used,
    profiles::a_template_that_fails_touches_nothing_that_is_there,
    profiles::a_paused_worker_cluster_is_left_alone,
    profiles::a_worker_cluster_that_is_deleted_is_back_with_its_settings,
    profiles::a_default_profile_that_is_deleted_or_downgraded_is_back,
    sizes::a_document_that_the_provider_does_not_take_is_refused_and_the_old_one_stays,
    sizes::a_machine_deployment_that_is_too_large_is_refused_and_what_was_made_stays,
    sizes::a_tenant_exceeds_its_guaranteed_memory_only_while_there_is_some_left,
    sizes::a_document_close_to_its_limit_is_served_with_a_warning_until_it_shrinks,
    overlays::a_changed_base_rerenders_only_its_overlays,
    credentials::each_machine_deployments_token_reads_its_own_secrets_and_no_others,
    credentials::without_the_rights_machines_share_the_fetcher_and_the_condition_says_so,
    credentials::switching_own_credentials_on_and_off_renders_again,
    credentials::purge_and_the_removal_of_orphans_take_credentials_along,
    machines::outdated_machines_are_replaced_one_machine_deployment_at_a_time,
    machines::a_change_above_the_limit_replaces_no_machines_until_it_is_permitted,
    machine_reports::what_machines_report_is_a_condition,
    plan::a_plan_says_what_would_be_written_and_writes_nothing,
    plan::a_plan_knows_of_own_credentials_and_of_a_pause,
    plan::a_template_that_waits_for_its_revision_is_not_called_current,
    edge::an_edge_script_is_there_as_long_as_its_machine_deployment,
    definitions::a_configs_spec_never_changes_and_its_annotations_may,
    definitions::a_profiles_spec_changes_with_its_version_only,
    joining::a_right_that_is_revoked_is_named_with_the_command_that_restores_it,
    joining::what_machines_need_is_put_right_whatever_is_done_to_it,
    definitions::only_a_profile_that_extends_another_may_leave_out_what_it_shares,
    definitions::an_effect_names_units_where_it_restarts_some,
    definitions::settings_that_no_machine_can_use_are_refused_with_what_to_write,
    definitions::what_an_older_definition_let_through_can_still_be_updated,
    adoption::a_cluster_of_kubeone_is_adopted_without_a_rotation,
    adoption::a_cluster_of_kkp_is_adopted_without_a_rotation,
    adoption::a_cluster_with_a_management_cluster_is_adopted_without_a_rotation,
    adoption::an_adoption_copies_no_more_profiles_than_the_quota_has_room_for,
    adoption::adoption_nothing_copies_no_profile,
    adoption::a_cluster_that_is_handed_back_does_not_rotate,
    adoption::a_cluster_of_kkp_goes_there_and_back_as_it_was,
    unknown::names_that_nobody_knows_refuse_only_who_uses_them,
    unknown::an_adopted_cluster_keeps_names_that_nobody_knows,
    drop_in::kubeones_line_serves_one_cluster_with_its_definitions_and_rights,
    drop_in::a_management_and_one_worker_cluster_are_served_with_the_rights_of_each,
    homes::a_user_cluster_of_kkp_goes_back_and_forth_without_a_write,
    homes::a_cluster_that_is_the_home_of_two_is_served_for_the_first,
    homes::a_home_without_the_definitions_says_what_is_missing,
    kkp::a_seed_is_served_without_a_command_for_each_cluster,
    inventories::clusters_of_cluster_api_are_served_without_a_label,
    rights::every_granted_verb_is_used_in_one_life_and_nothing_else_is_asked_for,
    life::a_reconcile_is_one_trace_with_its_steps_flushed_at_sigterm,
    traces::a_real_collector_shows_what_a_reconcile_did_and_its_death_costs_traces_alone,
    life::a_reconcile_is_linked_to_what_its_machine_deployment_was_changed_for,
    life::a_second_signal_ends_the_process_at_once,
    fleet_page::every_tenant_is_told_to_this_machine_or_for_the_token,
    fleet_page::a_browser_that_signs_in_at_one_replica_sees_the_page_of_each,
    fleet_page::a_browser_shows_it_in_both_colour_schemes_and_filters,
    replicas::three_processes_hand_tenants_over_when_they_are_killed_stopped_or_restarted,
    replicas::a_rolling_restart_of_three_loses_no_change_and_rotates_nothing,
    canary::no_secret_of_any_cloud_is_reported_and_nothing_of_a_tenant_reaches_another,
}
