"""Sign tokens for Amazon MSK's IAM login on this machine when librdkafka requests one.

The signer (`pip install 'mirrorlake[msk]'`) takes credentials from AWS's usual chain, from a profile, or from a role; the
settings hold none of them. A token lives 15 minutes, and librdkafka requests the next one before it ends.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from mirrorlake.config.client import read_token_spec
from mirrorlake.errors import ConfigError, Fault

# b-1.name.abc123.c2.kafka.eu-west-1.amazonaws.com:9098, boot-abc.c1.kafka-serverless.us-east-1.amazonaws.com:9098
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?$")
_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True)
class MskToken:
    """Sign a token whenever librdkafka calls. It holds no credentials and can be sent to Spark's workers.

    `profile` is one of AWS's shared configuration, None for the default chain; `role` is the ARN of a role to assume instead.
    """

    region: str
    profile: str | None = None
    role: str | None = None
    session: str | None = None

    def __call__(self, _: str | None = None) -> tuple[str, float]:
        """Return a token and its end, in seconds since 1970."""
        signer = _signer()
        if self.role is not None:
            more = {} if self.session is None else {"sts_session_name": self.session}
            token, ends_ms = signer.generate_auth_token_from_role_arn(self.region, self.role, **more)
        elif self.profile is not None:
            token, ends_ms = signer.generate_auth_token_from_profile(self.region, self.profile)
        else:
            token, ends_ms = signer.generate_auth_token(self.region)
        return token, ends_ms / 1000


def msk_token(spec: str, servers: str, *, file: str, place: str) -> MskToken:
    """Return the callback for a cluster; `spec` tells who logs in, `servers` or the environment the region."""
    try:
        _signer()
    except ImportError:
        problem = "MSK's IAM login needs Amazon's signer, which is not installed"
        raise ConfigError([Fault(file, f"{place}.client", problem, "pip install 'mirrorlake[msk]'")]) from None
    login = read_token_spec(spec)
    return MskToken(
        region=_region(servers, file, place),
        profile=login.get("awsProfileName"),
        role=login.get("awsRoleArn"),
        session=login.get("awsRoleSessionName"),
    )


def _region(servers: str, file: str, place: str) -> str:
    named = {match.group(1) for server in servers.split(",") if (match := _HOST.search(server.strip()))}
    if len(named) > 1:
        problem = f"the brokers are in several AWS regions ({', '.join(sorted(named))})"
        raise ConfigError([Fault(file, f"{place}.bootstrap_servers", problem, "name the brokers of one cluster")])
    found = next(iter(named), None) or next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), None)
    if found is None:
        problem = "neither the brokers' names nor the environment show their AWS region"
        raise ConfigError(
            [Fault(file, f"{place}.client", problem, "export AWS_REGION=eu-west-1, or the region of these brokers")]
        )
    return found


def _signer() -> Any:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    return MSKAuthTokenProvider
