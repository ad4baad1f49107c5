"""The declaration of the settings is complete and consistent."""

from __future__ import annotations

import dataclasses
import re

import pytest

from polymq.config_sections import PLANNED_SECTIONS, SECTIONS, Setting, Settings, settings_of

ALL = [each for section in SECTIONS for each in settings_of(section)]


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_every_default_can_be_written_and_read(setting: Setting) -> None:
    assert setting.kind.read(setting.kind.write(setting.default)) == setting.default


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_every_setting_explains_itself(setting: Setting) -> None:
    assert len(setting.explanation) > 8
    assert re.fullmatch(r"[a-z_]+\.[a-z][a-z0-9_]+", setting.name)
    assert setting.variable == "POLYMQ_" + setting.name.upper().replace(".", "_")


def test_names_are_unique_in_all_three_places() -> None:
    for names in ([each.name for each in ALL], [each.variable for each in ALL], [each.flag for each in ALL if each.flag]):
        assert len(names) == len(set(names))


def test_the_unit_is_in_the_field_and_not_in_the_key() -> None:
    (timeout,) = [each for each in ALL if each.field == "msg_timeout_ns"]
    assert timeout.key == "msg_timeout"
    assert timeout.name == "nsq.msg_timeout"


def test_settings_have_one_field_per_section() -> None:
    assert {each.name for each in dataclasses.fields(Settings)} == {*SECTIONS, "origins"}
    assert set(SECTIONS) > PLANNED_SECTIONS
    assert all(each.planned for section in PLANNED_SECTIONS for each in settings_of(section))


def test_what_is_planned_is_off() -> None:
    assert [each.name for each in ALL if each.planned and each.default] == []
