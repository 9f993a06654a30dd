"""`lake.storage`: one spelling for every library, secrets by reference only."""

from __future__ import annotations

import pytest

from mirrorlake.config import loads
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.errors import ConfigError
from mirrorlake.runtime import Store


def config(root: str, storage: str) -> MirrorConfig:
    return loads(f"""
lake: {{root: "{root}", storage: {storage}}}
clusters: {{east: {{bootstrap_servers: "e:1"}}, central: {{bootstrap_servers: "c:1"}}}}
flows: [{{source: east, target: central, topics: orders}}]
""")


def store_of(root: str, storage: str) -> Store:
    told = config(root, storage).lake.store()
    assert told is not None
    return Store(*told)


KEYS = "access_key: AKIA, secret_key: '${env:LAKE_SECRET}'"


def test_each_library_gets_its_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", "hunter2")
    written = "s3a://b/p", f"{{endpoint: 'http://h:9000', allow_http: true, path_style: true, {KEYS}}}"
    store = store_of(*written)
    delta = store.for_delta
    assert (delta["aws_endpoint"], delta["aws_secret_access_key"], delta["allow_http"]) == (
        "http://h:9000",
        "hunter2",
        "true",
    )
    assert delta["aws_virtual_hosted_style_request"] == "false"
    assert store.for_hadoop() == {
        "fs.s3a.bucket.b.endpoint": "http://h:9000",
        "fs.s3a.bucket.b.endpoint.region": "us-east-1",
        "fs.s3a.bucket.b.access.key": "AKIA",
        "fs.s3a.bucket.b.secret.key": "hunter2",
        "fs.s3a.bucket.b.path.style.access": "true",
        "fs.s3a.bucket.b.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    assert "hunter2" not in repr(store) + repr(config(*written).lake)


def test_azure_and_google_are_reached_by_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", "aGk=")
    store = store_of("abfss://box@acct.dfs.core.windows.net/m", "{account_key: '${env:LAKE_SECRET}'}")
    assert store.for_delta["azure_storage_account_key"] == "aGk="
    assert store.for_arrow.type_name == "abfs"
    assert store.for_hadoop() == {}
    assert config("gs://box/m", "{}").lake.store() == ("gs://box/m", {})
    keys = "{client_id: app, client_secret: '${env:LAKE_SECRET}', tenant_id: tenant}"
    principal = store_of("abfss://box@acct.dfs.core.windows.net/m", keys).for_delta
    assert {key: value for key, value in principal.items() if key.startswith(("azure_", "aws_region"))} == {
        "azure_storage_client_id": "app",
        "azure_storage_client_secret": "aGk=",
        "azure_storage_tenant_id": "tenant",
    }
    assert config("s3a://b/p", "").lake.store() is None, "without storage only Spark reaches it"


@pytest.mark.parametrize(
    ("root", "storage", "said"),
    [
        ("./lake", "{region: eu}", "'storage' is for a root on an object store"),
        ("s3a://b/p", "{endpoint: 'http://h:9000'}", "no TLS"),
        ("s3a://b/p", "{access_key: A}", "belong together"),
        ("s3a://b/p", "{access_key: A, secret_key: hunter2}", "is written in the file"),
        ("s3a://b/p", "{account_key: '${env:X}'}", "'account_key' has no effect for s3a://"),
        ("gs://b/p", "{region: eu}", "'region' has no effect for gs://"),
        ("s3a://b/p", "{regoin: eu}", "regoin"),
    ],
)
def test_what_does_not_fit_is_refused(root: str, storage: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config(root, storage)
    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_credentials_for_a_time_reach_each_library_with_their_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", "hunter2")
    monkeypatch.setenv("LAKE_TOKEN", "hunter3")
    store = store_of("s3a://b/p", f"{{region: eu-central-1, session_token: '${{env:LAKE_TOKEN}}', {KEYS}}}")
    assert (store.for_delta["aws_session_token"], store.for_delta["aws_region"]) == ("hunter3", "eu-central-1")
    assert store.for_arrow.type_name == "s3"
    hadoop = store.for_hadoop()
    assert hadoop["fs.s3a.bucket.b.session.token"] == "hunter3"
    # The provider for lasting keys would sign without the token.
    assert hadoop["fs.s3a.bucket.b.aws.credentials.provider"].endswith("TemporaryAWSCredentialsProvider")
    assert "hunter" not in repr(store)


def test_a_commit_of_amazon_s_puts_no_object_over_another() -> None:
    assert Store("s3a://b/p", {}).for_delta["aws_conditional_put"] == "etag"
    # Azure and Google refuse to put over an object by themselves; the option is Amazon's.
    assert "aws_conditional_put" not in Store("gs://box/m", {}).for_delta
